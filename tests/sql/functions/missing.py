"""The functions of Spark 4.3 that are not on the shared host, by the reason."""

from __future__ import annotations

from headrace.sql.bind.derived_calls import DERIVED
from headrace.sql.bind.expression_binder import GENERATORS
from headrace.sql.bind.operator_calls import CAST_FUNCTIONS
from headrace.sql.functions import ALIASES, FUNCTIONS
from headrace.sql.functions.aggregate_functions import AGGREGATE_ALIASES, AGGREGATE_NAMES

_SKETCHES = """approx_top_k approx_top_k_accumulate approx_top_k_combine approx_top_k_estimate count_min_sketch
hll_sketch_agg hll_sketch_estimate hll_union hll_union_agg kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float
kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kll_sketch_get_n_bigint kll_sketch_get_n_double
kll_sketch_get_n_float kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double kll_sketch_get_quantile_float
kll_sketch_get_rank_bigint kll_sketch_get_rank_double kll_sketch_get_rank_float kll_sketch_merge_bigint
kll_sketch_merge_double kll_sketch_merge_float kll_sketch_to_string_bigint kll_sketch_to_string_double
kll_sketch_to_string_float theta_difference theta_intersection theta_intersection_agg theta_sketch_agg
theta_sketch_estimate theta_union theta_union_agg tuple_difference_double tuple_difference_integer
tuple_difference_theta_double tuple_difference_theta_integer tuple_intersection_agg_double
tuple_intersection_agg_integer tuple_intersection_double tuple_intersection_integer tuple_intersection_theta_double
tuple_intersection_theta_integer tuple_sketch_agg_double tuple_sketch_agg_integer tuple_sketch_estimate_double
tuple_sketch_estimate_integer tuple_sketch_summary_double tuple_sketch_summary_integer tuple_sketch_theta_double
tuple_sketch_theta_integer tuple_union_agg_double tuple_union_agg_integer tuple_union_double tuple_union_integer
tuple_union_theta_double tuple_union_theta_integer"""

REASONS: dict[str, str] = {
    "return another value each time": "monotonically_increasing_id rand randn random randstr shuffle uniform uuid",
    "depend on the session, the file or the task": """current_catalog current_database current_path current_schema
current_user input_file_block_length input_file_block_start input_file_name python_worker_logs session_user
spark_partition_id user version""",
    "run Java code or are tables": "collations java_method range reflect sql_keywords try_reflect",
    "need types that streams do not have (VARIANT, TIME, XML, geometry, nanoseconds)": """current_time
is_valid_variant is_variant_null localtime make_time parse_json schema_of_variant schema_of_variant_agg st_asbinary
st_geogfromwkb st_geomfromwkb st_setsrid st_srid time time_diff time_from_micros time_from_millis time_from_seconds
time_to_micros time_to_millis time_to_seconds time_trunc timestamp_nanos to_time to_variant_object try_parse_json
try_to_time try_variant_array_append try_variant_get try_variant_insert try_variant_set unix_nanos variant_array_append
variant_delete variant_explode variant_explode_outer variant_get variant_insert variant_set variant_strip_nulls
from_xml schema_of_xml to_xml xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long xpath_number xpath_short
xpath_string""",
    "read formats with a schema of their own": """from_avro from_csv from_protobuf schema_of_avro schema_of_csv to_avro
to_csv to_protobuf""",
    "have a state in a binary format of Spark's libraries": _SKETCHES,
    "are window functions": "counter_diff cume_dist lag lead nth_value ntile percent_rank",
    "belong to other parts of SQL": "measure window_time",
    "are not done yet": """aes_decrypt aes_encrypt collate collect_union sentences
try_aes_decrypt vector_avg vector_sum""",
}
MISSING = frozenset(name for names in REASONS.values() for name in names.split())
_TRANSLATED = frozenset(
    {"if", "ifnull", "nvl", "nvl2", "date_part", "datepart", "case", "when", "between", "extract", "cast"}
)
# Those of grouping sets, and those that rank the groups of a window.
_OF_GROUPS = frozenset({"grouping", "grouping_id", "row_number", "rank", "dense_rank"})
_OPERATORS = frozenset({"!", "<>", "==", "<<", ">>", ">>>"})

AGGREGATES_BY_NAME = frozenset({*AGGREGATE_NAMES, *AGGREGATE_ALIASES})
SCALARS_BY_NAME = frozenset({*FUNCTIONS, *ALIASES, *CAST_FUNCTIONS, *DERIVED, *_TRANSLATED}) - AGGREGATES_BY_NAME
SUPPORTED = SCALARS_BY_NAME | AGGREGATES_BY_NAME | GENERATORS | _OPERATORS | _OF_GROUPS | {"window", "session_window"}


def missing_section() -> list[str]:
    """The lines of the page."""
    lines = ["## Functions of Spark that are not on the shared host", "", "| because they ... | names |", "|---|---|"]
    for reason, names in REASONS.items():
        lines.append(f"| {reason} | {', '.join(f'`{n}`' for n in sorted(names.split()))} |")
    return [*lines, ""]
