-- Joins while the others run: two more columns are decoded from the next epoch on, and nobody restarts.
CREATE SINK power_out WITH (type = 'memory', max_rows = '10000');

CREATE PIPELINE power INTO power_out AS
  SELECT window.start AS minute, min(batt) AS lowest_battery, round(avg(volt), 3) AS volt
  FROM sensors GROUP BY window(ts, '1 minute');
