"""What to write instead of a function of Spark that the shared host does not have. Each advice works when followed."""

from __future__ import annotations

import re

_INSTEAD: tuple[tuple[str, str], ...] = (
    ("from_csv|schema_of_csv", "Use split_part(), and cast the parts."),
    ("to_csv", "Use concat_ws()."),
    ("(try_)?parse_json|.*variant.*", "Use from_json() or get_json_object()."),
    ("from_xml|schema_of_xml|xpath.*", "Use regexp_extract()."),
    ("to_xml", "Use to_json() or format_string()."),
    ("hll_.*|theta_.*|tuple_.*", "Use approx_count_distinct()."),
    ("kll_.*", "Use percentile_approx()."),
    ("count_min_sketch|approx_top_k.*", "Group by the value, use count(), and keep the top ones with row_number()."),
    ("collect_union", "Use array_distinct(flatten(collect_list(...)))."),
    ("collate|collations", "Use lower() on both sides."),
    ("sentences", "Use split()."),
    ("current_time|localtime", "Use date_format(current_timestamp(), 'HH:mm:ss')."),
    ("make_time|time|(try_)?to_time|time_from_.*", "Keep the seconds of the day as an INT."),
    ("time_trunc", "Use date_trunc()."),
    ("time_diff", "Use timestampdiff()."),
    ("time_to_.*", "Use unix_micros(), unix_millis() or unix_seconds()."),
    ("timestamp_nanos|unix_nanos", "Use timestamp_micros() or unix_micros()."),
    ("lag|lead|nth_value", "Over the rows of a window, use collect_list() and element_at()."),
    ("ntile|cume_dist|percent_rank", "Use percentile_approx()."),
    ("counter_diff", "Use max() and min() of each window."),
    ("rand.*|uniform|uuid|shuffle|monotonically_increasing_id", "Use xxhash64() of the row's columns."),
    ("vector_(avg|sum)", "Aggregate the elements one by one, as in sum(v[0])."),
    ("(try_)?aes_.*", "Use hmac() or sha2() if the values need not be read again."),
    ("from_avro|schema_of_avro", "Declare the stream with format = 'avro'."),
    ("input_file_.*|spark_partition_id", "Declare a METADATA column, where the source has one."),
    ("current_.*|session_user|user|version", "Write the value as a literal."),
    ("bitmap_.*", "Use bitmap_construct_agg() and bitmap_count()."),
)  # fmt: skip
# Functions of other databases, and those of Spark that do the same.
_OTHERS: dict[str, str] = {
    "approx_distinct": "approx_count_distinct()", "approx_quantiles": "percentile_approx()", "arg_max": "max_by()",
    "arg_min": "min_by()", "argmax": "max_by()", "argmin": "min_by()", "array_agg_distinct": "collect_set()",
    "array_length": "size()", "array_to_string": "array_join()", "charindex": "instr()",
    "count_distinct": "count(DISTINCT x)", "date_parse": "to_timestamp()", "datetime_diff": "timestampdiff()",
    "day_of_week": "dayofweek()", "day_of_year": "dayofyear()", "ends_with": "endswith()", "epoch_ms": "unix_millis()",
    "from_base64": "unbase64()", "generate_series": "sequence()", "getdate": "current_timestamp()",
    "group_concat": "listagg()", "iff": "if()", "iif": "if()", "isinf": "abs(x) = double('Infinity')",
    "json_extract": "get_json_object()", "json_extract_path_text": "get_json_object()",
    "json_extract_scalar": "get_json_object()", "json_query": "get_json_object()", "json_value": "get_json_object()",
    "list_contains": "array_contains()", "logical_and": "bool_and()", "logical_or": "bool_or()",
    "parse_datetime": "to_timestamp()", "regexp_matches": "rlike", "regexp_split": "split()", "safe_cast": "TRY_CAST",
    "safe_divide": "try_divide()", "split_to_array": "split()", "starts_with": "startswith()",
    "str_to_date": "to_date()", "strftime": "date_format()", "string_split": "split()", "string_to_array": "split()",
    "strpos": "instr()", "strptime": "to_timestamp()", "time_slice": "window()", "timestamp_diff": "timestampdiff()",
    "timestamp_sub": "timestampadd()", "timestamp_trunc": "date_trunc()", "to_base64": "base64()",
    "to_boolean": "boolean()", "to_double": "double()", "to_hex": "hex()",
    "truncate": "trunc() of dates, and floor() and ceil() of numbers", "unnest": "explode()",
    "utc_timestamp": "current_timestamp()", "year_of_week": "extract(yearofweek FROM x)",
}  # fmt: skip


def other_dialect(name: str) -> str | None:
    """The function of Spark for one of another database, None if `name` is none of these."""
    return _OTHERS.get(name)


def instead_of(name: str) -> str | None:
    """The advice for a function that is missing. None if there is nothing to use instead."""
    return next((advice for names, advice in _INSTEAD if re.fullmatch(names, name)), None)
