-- Joins while the others run: two more columns are decoded from the next epoch on, and nothing restarts.
CREATE SINK power_out WITH (type = 'memory', max_rows = '10000');

CREATE PIPELINE power INTO power_out AS
  SELECT window.start AS minute, min(batt) AS lowest_battery, avg(volt) AS volt
  FROM sensors GROUP BY window(ts, '1 minute');
