# SPDX-License-Identifier: MIT
"""Declarations of libstitch for ctypes. Written by bindings/python/generate.py from include/stitch/*.h: do not edit.

Strings that a callback receives are plain addresses (they may lack a NUL); strings that functions return are bytes and
copied, unless the caller has to free them, then they are addresses too.
"""
from __future__ import annotations

import enum
from ctypes import CFUNCTYPE, POINTER, c_bool, c_char, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, Dict, Tuple

from ._integers import Structure

AGAIN = 1
MAX_RANK = 8
READY = 2
TRACE_NO_DRIVER = 2
TRACE_NO_RUNTIME = 4
TRACE_NO_SYNC = 1
TRACE_NO_WAIT = 8
TRACE_UNLOAD = 16
VERSION_MAJOR = 0
VERSION_MINOR = 1
VERSION_PATCH = 0
VERSION_STRING = "0.1.0"


class stitch_status(enum.IntEnum):
    OK = 0
    E_INVALID = -1
    E_NOMEM = -2
    E_NOT_FOUND = -3
    E_UNSUPPORTED = -4
    E_IO = -5
    E_FORMAT = -6
    E_LIMIT = -7
    E_CANCELLED = -8
    E_TIMEOUT = -9
    E_BUSY = -10
    E_NO_DEVICE = -11
    E_NO_LIBRARY = -12
    E_DRIVER = -13
    E_LIBRARY = -14
    E_COMPILE = -15
    E_VALIDATE = -16
    E_FAULT = -17
    E_HTTP = -18
    E_AUTH = -19
    E_BUDGET = -20
    E_REPLY = -21
    E_REPLAY = -22
    E_STATE = -23
    E_INTERNAL = -24


class stitch_domain(enum.IntEnum):
    NONE = 0
    SYSTEM = 1
    JSON = 2
    CURL = 3
    HTTP = 4
    DRIVER = 5
    NVRTC = 6
    CUBLASLT = 7
    CUDNN = 8
    CUPTI = 9
    SQLITE = 10
    TASK = 11
    PROGRAM = 12
    REPLY = 13
    SIM = 14


class stitch_log_level(enum.IntEnum):
    NONE = 0
    ERROR = 1
    WARN = 2
    INFO = 3
    DEBUG = 4


class stitch_dtype(enum.IntEnum):
    NONE = 0
    F64 = 1
    F32 = 2
    TF32 = 3
    F16 = 4
    BF16 = 5
    F8E4M3 = 6
    F8E5M2 = 7
    I64 = 8
    I32 = 9
    I16 = 10
    I8 = 11
    U8 = 12
    BOOL = 13


class stitch_message_role(enum.IntEnum):
    SYSTEM = 0
    USER = 1
    ASSISTANT = 2


class stitch_severity(enum.IntEnum):
    NOTE = 0
    WARNING = 1
    ERROR = 2


class stitch_param_kind(enum.IntEnum):
    UNKNOWN = 0
    POINTER = 1
    SCALAR = 2
    STRUCT = 3


class stitch_tensor_role(enum.IntEnum):
    INPUT = 0
    WEIGHT = 1
    OUTPUT = 2
    STATE = 3


class stitch_dist_kind(enum.IntEnum):
    NONE = 0
    NORMAL = 1
    UNIFORM = 2
    CONSTANT = 3
    RANDINT = 4
    BERNOULLI = 5
    TRIL = 6
    ARANGE = 7


class stitch_precision(enum.IntEnum):
    ANY = 0
    F32 = 1
    TF32 = 2
    F16 = 3


class stitch_stage(enum.IntEnum):
    NONE = 0
    FORMAT = 1
    VALIDATE = 2
    COMPILE = 3
    SIMULATE = 4
    LOAD = 5
    PREPARE = 6
    CORRECT = 7
    EXPLOIT = 8
    TIME = 9
    PROFILE = 10
    COUNT = 11


class stitch_stage_status(enum.IntEnum):
    NOT_RUN = 0
    PASSED = 1
    FAILED = 2
    SKIPPED = 3


class stitch_verify_where(enum.IntEnum):
    AUTO = 0
    HERE = 1
    WORKER = 2


class stitch_verify_simulate(enum.IntEnum):
    AUTO = 0
    NEVER = 1


class stitch_verify_profile(enum.IntEnum):
    AUTO = 0
    FULL = 1
    TIMELINE = 2
    NEVER = 3


class stitch_role(enum.IntEnum):
    PLANNER = 0
    CODER = 1
    CRITIC = 2
    JUDGE = 3


class stitch_action(enum.IntEnum):
    NONE = 0
    PLAN = 1
    DRAFT = 2
    REPAIR_COMPILE = 3
    REPAIR_CORRECTNESS = 4
    OPTIMISE = 5
    REPLAN = 6
    STOP = 7


class stitch_trace_kind(enum.IntEnum):
    KERNEL = 0
    COPY = 1
    FILL = 2
    SYNC = 3
    DRIVER = 4
    RUNTIME = 5
    GRAPH_LAUNCH = 6


class stitch_allocator(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("alloc", CFUNCTYPE(c_void_p, c_size_t, c_void_p)),
        ("realloc", CFUNCTYPE(c_void_p, c_void_p, c_size_t, c_void_p)),
        ("free", CFUNCTYPE(None, c_void_p, c_void_p)),
        ("userdata", c_void_p),
    ]


stitch_log_fn = CFUNCTYPE(None, c_int, c_void_p, c_void_p)


stitch_get_proc_fn = CFUNCTYPE(c_void_p, c_void_p, c_void_p)


class stitch_context_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("device", c_char_p),
        ("cache_dir", c_char_p),
        ("cache_limit_bytes", c_uint64),
        ("cuda_path", c_char_p),
        ("allocator", POINTER(stitch_allocator)),
        ("log", stitch_log_fn),
        ("log_userdata", c_void_p),
        ("log_level", c_int32),
        ("reserved", c_int32),
        ("get_proc", stitch_get_proc_fn),
        ("get_proc_userdata", c_void_p),
    ]


class stitch_message(Structure):
    _fields_ = [
        ("role", c_int32),
        ("reserved", c_int32),
        ("content", c_char_p),
    ]


stitch_token_fn = CFUNCTYPE(None, c_size_t, c_int, c_void_p, c_size_t, c_void_p)


class stitch_request(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("messages", POINTER(stitch_message)),
        ("message_count", c_size_t),
        ("label", c_char_p),
        ("fingerprint", c_char_p),
        ("json_schema", c_char_p),
        ("max_tokens", c_int64),
        ("temperature", c_double),
        ("on_token", stitch_token_fn),
        ("userdata", c_void_p),
        ("cancel", c_void_p),
        ("timeout_ms", c_int64),
    ]


class stitch_http_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("base_url", c_char_p),
        ("model", c_char_p),
        ("api_key", c_char_p),
        ("api_key_env", c_char_p),
        ("stream", c_int32),
        ("structured", c_int32),
        ("max_retries", c_int32),
        ("max_concurrent", c_int32),
        ("connect_timeout_ms", c_int64),
        ("idle_timeout_ms", c_int64),
        ("total_timeout_ms", c_int64),
        ("max_tokens", c_int64),
        ("max_reply_bytes", c_uint64),
        ("temperature", c_double),
        ("extra_body", c_char_p),
        ("price_in", c_double),
        ("price_out", c_double),
    ]


stitch_model_fn = CFUNCTYPE(c_int, POINTER(stitch_request), c_void_p, c_void_p)


class stitch_diagnostic(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("severity", c_int32),
        ("line", c_int32),
        ("column", c_int32),
        ("reserved", c_int32),
        ("file", c_char_p),
        ("message", c_char_p),
    ]


class stitch_param_info(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("kind", c_int32),
        ("dtype", c_int32),
        ("is_const", c_int32),
        ("is_tensor_map", c_int32),
        ("offset", c_uint64),
        ("size", c_uint64),
        ("type", c_char_p),
    ]


class stitch_kernel_info(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("symbol", c_char_p),
        ("registers", c_int64),
        ("static_shared", c_int64),
        ("local", c_int64),
        ("spill_stores", c_int64),
        ("spill_loads", c_int64),
        ("max_threads", c_int64),
        ("param_count", c_size_t),
    ]


class stitch_compile_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("arch", c_char_p),
        ("names", POINTER(c_char_p)),
        ("name_count", c_size_t),
        ("flags", POINTER(c_char_p)),
        ("flag_count", c_size_t),
        ("no_cache", c_int32),
        ("ptx", c_int32),
        ("cancel", c_void_p),
        ("timeout_ms", c_int64),
        ("max_source_bytes", c_uint64),
    ]


class stitch_tensor_info(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("role", c_int32),
        ("dtype", c_int32),
        ("rank", c_size_t),
        ("shape_expr", c_char_p * 8),
        ("shape", c_int64 * 8),
        ("elements", c_uint64),
        ("bytes", c_uint64),
    ]


class stitch_program_limits(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("source_bytes", c_uint64),
        ("json_bytes", c_uint64),
        ("steps", c_uint64),
        ("launches", c_uint64),
        ("workspace_bytes", c_uint64),
        ("file_bytes", c_uint64),
    ]


class stitch_op_arg(Structure):
    _fields_ = [
        ("ptr", c_uint64),
        ("integer", c_int64),
        ("real", c_double),
        ("dtype", c_int32),
        ("is_pointer", c_int32),
        ("bytes", c_uint64),
    ]


stitch_op_fn = CFUNCTYPE(c_int, c_void_p, POINTER(stitch_op_arg), c_size_t, c_void_p, c_void_p)


class stitch_op(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("fn", stitch_op_fn),
        ("userdata", c_void_p),
    ]


class stitch_executor_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("dim_names", POINTER(c_char_p)),
        ("dim_values", POINTER(c_int64)),
        ("dim_count", c_size_t),
        ("ops", POINTER(stitch_op)),
        ("op_count", c_size_t),
        ("no_graph", c_int32),
        ("max_plans", c_int32),
        ("library_workspace_bytes", c_uint64),
        ("max_workspace_bytes", c_uint64),
        ("no_tuning", c_int32),
        ("capturable", c_int32),
    ]


class stitch_executor_stats(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("workspace_bytes", c_uint64),
        ("library_workspace_bytes", c_uint64),
        ("launches", c_uint64),
        ("prepare_launches", c_uint64),
        ("graph_updates", c_uint64),
        ("graph_builds", c_uint64),
        ("prepare_build_ms", c_double),
    ]


class stitch_dist(Structure):
    _fields_ = [
        ("kind", c_int32),
        ("reserved", c_int32),
        ("a", c_double),
        ("b", c_double),
    ]


class stitch_bound_tensor(Structure):
    _fields_ = [
        ("info", stitch_tensor_info),
        ("ptr", c_uint64),
    ]


stitch_reference_fn = CFUNCTYPE(c_int, c_void_p, POINTER(stitch_bound_tensor), c_size_t, c_void_p)


stitch_stage_fn = CFUNCTYPE(None, c_int, c_int, c_int64, c_int64, c_void_p)


class stitch_verify_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("trials", c_int32),
        ("warmup", c_int32),
        ("iterations", c_int32),
        ("last_stage", c_int32),
        ("seed", c_uint64),
        ("flush_bytes", c_uint64),
        ("time_budget_ms", c_int64),
        ("ops", POINTER(stitch_op)),
        ("op_count", c_size_t),
        ("on_stage", stitch_stage_fn),
        ("userdata", c_void_p),
        ("cancel", c_void_p),
        ("timeout_ms", c_int64),
        ("where", c_int32),
        ("simulate", c_int32),
        ("profile", c_int32),
        ("reserved", c_int32),
        ("metrics", POINTER(c_char_p)),
        ("metric_count", c_size_t),
    ]


class stitch_report_summary(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("failed_stage", c_int32),
        ("status", c_int32),
        ("correct", c_int32),
        ("timed", c_int32),
        ("max_abs_error", c_double),
        ("max_rel_error", c_double),
        ("mean_abs_error", c_double),
        ("elements", c_uint64),
        ("mismatches", c_uint64),
        ("median_us", c_double),
        ("low_us", c_double),
        ("high_us", c_double),
        ("baseline_us", c_double),
        ("baseline_low_us", c_double),
        ("baseline_high_us", c_double),
        ("speedup", c_double),
        ("prepare_us", c_double),
        ("workspace_bytes", c_uint64),
        ("launches", c_uint64),
        ("seed", c_uint64),
        ("degenerate", c_int32),
        ("isolated", c_int32),
        ("speedup_low", c_double),
        ("speedup_high", c_double),
        ("busy_us", c_double),
    ]


class stitch_admit_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("seed", c_uint64),
        ("spread_factor", c_double),
        ("max_runs", c_int32),
        ("reserved", c_int32),
        ("ops", POINTER(stitch_op)),
        ("op_count", c_size_t),
        ("cancel", c_void_p),
        ("timeout_ms", c_int64),
    ]


class stitch_attempt(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("action", c_int32),
        ("base", c_int32),
        ("plan", c_int32),
        ("subtask", c_int32),
        ("failed_stage", c_int32),
        ("correct", c_int32),
        ("speedup", c_double),
        ("median_us", c_double),
    ]


class stitch_policy(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("max_attempts", c_int32),
        ("max_repairs", c_int32),
        ("stagnation", c_int32),
        ("max_plans", c_int32),
        ("subtasks", c_int32),
        ("reserved", c_int32),
        ("target_speedup", c_double),
        ("min_gain", c_double),
    ]


class stitch_decision(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("action", c_int32),
        ("base", c_int32),
        ("subtask", c_int32),
        ("best", c_int32),
        ("reason", c_char * 160),
    ]


class stitch_plan_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("previous", c_void_p),
        ("attempts", POINTER(stitch_attempt)),
        ("reports", POINTER(c_void_p)),
        ("attempt_count", c_size_t),
        ("trace_summary", c_char_p),
        ("on_token", stitch_token_fn),
        ("userdata", c_void_p),
        ("cancel", c_void_p),
        ("timeout_ms", c_int64),
    ]


class stitch_code_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("action", c_int32),
        ("subtask", c_int32),
        ("plan", c_void_p),
        ("previous", c_void_p),
        ("report", c_void_p),
        ("best", c_void_p),
        ("best_report", c_void_p),
        ("notes", c_char_p),
        ("max_format_repairs", c_int32),
        ("reserved", c_int32),
        ("on_token", stitch_token_fn),
        ("userdata", c_void_p),
        ("cancel", c_void_p),
        ("timeout_ms", c_int64),
    ]


class stitch_device_info(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("arch", c_char_p),
        ("ordinal", c_int32),
        ("compute_major", c_int32),
        ("compute_minor", c_int32),
        ("simulated", c_int32),
        ("driver_version", c_int32),
        ("multiprocessors", c_int32),
        ("max_threads_per_block", c_int32),
        ("clock_khz", c_int32),
        ("memory_clock_khz", c_int32),
        ("memory_bytes", c_uint64),
        ("l2_bytes", c_uint64),
        ("shared_bytes_per_block", c_uint64),
        ("shared_bytes_per_block_optin", c_uint64),
        ("shared_bytes_per_multiprocessor", c_uint64),
    ]


stitch_region_fn = CFUNCTYPE(c_int, c_void_p)


class stitch_profile_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("profile", c_int32),
        ("reserved", c_int32),
        ("metrics", POINTER(c_char_p)),
        ("metric_count", c_size_t),
        ("images", POINTER(c_void_p)),
        ("sources", POINTER(c_char_p)),
        ("image_count", c_size_t),
        ("cancel", c_void_p),
        ("timeout_ms", c_int64),
    ]


class stitch_profile_verdict(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("bound", c_char_p),
        ("because", c_char_p),
        ("time_us", c_double),
        ("limit_us", c_double),
        ("reached", c_double),
        ("name", c_char_p),
    ]


class stitch_profile_advice(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("rule", c_char_p),
        ("kernel", c_char_p),
        ("problem", c_char_p),
        ("evidence", c_char_p),
        ("action", c_char_p),
        ("file", c_char_p),
        ("line", c_uint32),
        ("step", c_int32),
        ("gain_us", c_double),
        ("gain_share", c_double),
    ]


class stitch_trace_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("flags", c_uint32),
        ("reserved", c_uint32),
        ("max_records", c_uint64),
        ("cancel", c_void_p),
        ("timeout_ms", c_int64),
    ]


class stitch_trace_record(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("kind", c_int32),
        ("result", c_int32),
        ("name", c_char_p),
        ("symbol", c_char_p),
        ("start_us", c_double),
        ("end_us", c_double),
        ("device", c_uint32),
        ("context", c_uint32),
        ("stream", c_uint32),
        ("thread", c_uint32),
        ("correlation", c_uint32),
        ("calls", c_uint32),
        ("graph", c_uint32),
        ("step", c_int32),
        ("graph_node", c_uint64),
        ("bytes", c_uint64),
        ("grid", c_uint32 * 3),
        ("block", c_uint32 * 3),
        ("registers", c_uint32),
        ("static_shared", c_uint32),
        ("dynamic_shared", c_uint32),
        ("local", c_uint32),
    ]


class stitch_trace_summary(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("records", c_uint64),
        ("dropped", c_uint64),
        ("incomplete", c_uint64),
        ("unknown", c_uint64),
        ("region_us", c_double),
        ("span_us", c_double),
        ("busy_us", c_double),
        ("idle_us", c_double),
        ("idle_share", c_double),
        ("kernel_us", c_double),
        ("copy_us", c_double),
        ("overlap_us", c_double),
        ("lead_us", c_double),
        ("kernels", c_uint64),
        ("copies", c_uint64),
        ("fills", c_uint64),
        ("copy_bytes", c_uint64),
        ("graph_launches", c_uint64),
        ("graph_nodes", c_uint64),
        ("gaps", c_uint64),
        ("short_gaps", c_uint64),
        ("short_gap_us", c_double),
        ("longest_gap_us", c_double),
        ("idle_sync_us", c_double),
        ("idle_call_us", c_double),
        ("idle_host_us", c_double),
        ("syncs", c_uint64),
        ("sync_us", c_double),
        ("calls", c_uint64),
        ("call_us", c_double),
        ("devices", c_uint32),
        ("streams", c_uint32),
        ("has_calls", c_int32),
        ("reserved", c_int32),
    ]


class stitch_trace_kernel(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("symbol", c_char_p),
        ("count", c_uint64),
        ("total_us", c_double),
        ("mean_us", c_double),
        ("min_us", c_double),
        ("max_us", c_double),
        ("share", c_double),
        ("gap_before_us", c_double),
        ("grid", c_uint32 * 3),
        ("block", c_uint32 * 3),
        ("registers", c_uint32),
        ("static_shared", c_uint32),
        ("dynamic_shared", c_uint32),
        ("local", c_uint32),
        ("occupancy", c_double),
        ("waves", c_double),
        ("limiter", c_char_p),
        ("varied", c_int32),
        ("step", c_int32),
    ]


class stitch_trace_copy(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("count", c_uint64),
        ("bytes", c_uint64),
        ("total_us", c_double),
        ("gb_per_s", c_double),
        ("pageable", c_uint64),
    ]


class stitch_trace_gap(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("start_us", c_double),
        ("end_us", c_double),
        ("before", c_char_p),
        ("after", c_char_p),
        ("cause", c_char_p),
        ("call", c_char_p),
    ]


# Structs by name, and what is not zero in them to begin with.
STRUCTS: Dict[str, Any] = {
    "stitch_allocator": stitch_allocator,
    "stitch_context_options": stitch_context_options,
    "stitch_message": stitch_message,
    "stitch_request": stitch_request,
    "stitch_http_options": stitch_http_options,
    "stitch_diagnostic": stitch_diagnostic,
    "stitch_param_info": stitch_param_info,
    "stitch_kernel_info": stitch_kernel_info,
    "stitch_compile_options": stitch_compile_options,
    "stitch_tensor_info": stitch_tensor_info,
    "stitch_program_limits": stitch_program_limits,
    "stitch_op_arg": stitch_op_arg,
    "stitch_op": stitch_op,
    "stitch_executor_options": stitch_executor_options,
    "stitch_executor_stats": stitch_executor_stats,
    "stitch_dist": stitch_dist,
    "stitch_bound_tensor": stitch_bound_tensor,
    "stitch_verify_options": stitch_verify_options,
    "stitch_report_summary": stitch_report_summary,
    "stitch_admit_options": stitch_admit_options,
    "stitch_attempt": stitch_attempt,
    "stitch_policy": stitch_policy,
    "stitch_decision": stitch_decision,
    "stitch_plan_options": stitch_plan_options,
    "stitch_code_options": stitch_code_options,
    "stitch_device_info": stitch_device_info,
    "stitch_profile_options": stitch_profile_options,
    "stitch_profile_verdict": stitch_profile_verdict,
    "stitch_profile_advice": stitch_profile_advice,
    "stitch_trace_options": stitch_trace_options,
    "stitch_trace_record": stitch_trace_record,
    "stitch_trace_summary": stitch_trace_summary,
    "stitch_trace_kernel": stitch_trace_kernel,
    "stitch_trace_copy": stitch_trace_copy,
    "stitch_trace_gap": stitch_trace_gap,
}
INITIAL: Dict[str, Dict[str, float]] = {
    "stitch_request": {"temperature": -1.0},
    "stitch_attempt": {"base": -1, "subtask": -1},
    "stitch_decision": {"base": -1, "subtask": -1, "best": -1},
    "stitch_code_options": {"subtask": -1},
}
# The functions that initialise options structs.
INITIALISERS: Dict[str, str] = {
    "stitch_admit_options": "stitch_admit_options_init",
    "stitch_code_options": "stitch_code_options_init",
    "stitch_compile_options": "stitch_compile_options_init",
    "stitch_context_options": "stitch_context_options_init",
    "stitch_executor_options": "stitch_executor_options_init",
    "stitch_http_options": "stitch_http_options_init",
    "stitch_plan_options": "stitch_plan_options_init",
    "stitch_profile_options": "stitch_profile_options_init",
    "stitch_program_limits": "stitch_program_limits_init",
    "stitch_request": "stitch_request_init",
    "stitch_trace_options": "stitch_trace_options_init",
    "stitch_verify_options": "stitch_verify_options_init",
}


def functions() -> Dict[str, Tuple[Any, Tuple[Any, ...]]]:
    """Result and parameters of each function; made only when the library is loaded."""
    return {
        "stitch_action_name": (c_char_p, (c_int,)),
        "stitch_admission_cure": (c_char_p, (c_void_p,)),
        "stitch_admission_degenerate": (c_int, (c_void_p,)),
        "stitch_admission_free": (None, (c_void_p,)),
        "stitch_admission_json": (c_char_p, (c_void_p,)),
        "stitch_admission_reason": (c_char_p, (c_void_p,)),
        "stitch_admission_text": (c_char_p, (c_void_p,)),
        "stitch_admit_options_init": (c_int, (POINTER(stitch_admit_options), c_size_t)),
        "stitch_attempt_from_report": (c_int, (POINTER(stitch_attempt), c_void_p)),
        "stitch_bound_tensor_read": (c_int, (c_void_p, c_void_p, POINTER(stitch_bound_tensor), c_void_p, c_uint64, POINTER(c_void_p))),
        "stitch_bound_tensor_write": (c_int, (c_void_p, c_void_p, POINTER(stitch_bound_tensor), c_void_p, c_uint64, POINTER(c_void_p))),
        "stitch_budget_free": (None, (c_void_p,)),
        "stitch_budget_new": (c_int, (c_void_p, c_int64, c_double, POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_budget_used": (None, (c_void_p, POINTER(c_int64), POINTER(c_double), POINTER(c_int64))),
        "stitch_cancel_free": (None, (c_void_p,)),
        "stitch_cancel_new": (c_int, (POINTER(c_void_p),)),
        "stitch_cancel_reset": (None, (c_void_p,)),
        "stitch_cancel_trigger": (None, (c_void_p,)),
        "stitch_cancel_triggered": (c_bool, (c_void_p,)),
        "stitch_candidate_format_repairs": (c_int, (c_void_p,)),
        "stitch_candidate_free": (None, (c_void_p,)),
        "stitch_candidate_from_program": (c_int, (c_void_p, c_void_p, POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_candidate_from_reply": (c_int, (c_void_p, c_char_p, POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_candidate_notes": (c_char_p, (c_void_p,)),
        "stitch_candidate_notice": (c_char_p, (c_void_p,)),
        "stitch_candidate_program": (c_void_p, (c_void_p,)),
        "stitch_candidate_reply": (c_char_p, (c_void_p,)),
        "stitch_candidate_tokens": (c_int64, (c_void_p,)),
        "stitch_code": (c_int, (c_void_p, c_void_p, POINTER(stitch_code_options), c_size_t, POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_code_options_init": (c_int, (POINTER(stitch_code_options), c_size_t)),
        "stitch_compile": (c_int, (c_void_p, c_char_p, POINTER(stitch_compile_options), POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_compile_options_init": (c_int, (POINTER(stitch_compile_options), c_size_t)),
        "stitch_context_cancel": (None, (c_void_p,)),
        "stitch_context_cancel_reset": (None, (c_void_p,)),
        "stitch_context_free": (None, (c_void_p,)),
        "stitch_context_new": (c_int, (POINTER(c_void_p), POINTER(stitch_context_options), POINTER(c_void_p))),
        "stitch_context_options_init": (c_int, (POINTER(stitch_context_options), c_size_t)),
        "stitch_context_prompt": (c_char_p, (c_void_p, c_char_p)),
        "stitch_context_set_model": (c_int, (c_void_p, c_int, c_void_p, POINTER(c_void_p))),
        "stitch_context_set_prompt": (c_int, (c_void_p, c_char_p, c_char_p, POINTER(c_void_p))),
        "stitch_device_query": (c_int, (c_void_p, POINTER(stitch_device_info), POINTER(c_void_p))),
        "stitch_doctor": (c_int, (c_void_p, POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_domain_name": (c_char_p, (c_int,)),
        "stitch_dtype_name": (c_char_p, (c_int,)),
        "stitch_dtype_parse": (c_int, (c_char_p,)),
        "stitch_dtype_size": (c_size_t, (c_int,)),
        "stitch_error_code": (c_int, (c_void_p,)),
        "stitch_error_details": (c_char_p, (c_void_p,)),
        "stitch_error_domain": (c_int, (c_void_p,)),
        "stitch_error_free": (None, (c_void_p,)),
        "stitch_error_message": (c_char_p, (c_void_p,)),
        "stitch_error_native": (c_int64, (c_void_p,)),
        "stitch_executor_bind": (c_int, (c_void_p, c_size_t, c_uint64, c_uint64, POINTER(c_void_p))),
        "stitch_executor_bind_name": (c_int, (c_void_p, c_char_p, c_uint64, c_uint64, POINTER(c_void_p))),
        "stitch_executor_free": (None, (c_void_p,)),
        "stitch_executor_interface": (c_void_p, (c_void_p,)),
        "stitch_executor_new": (c_int, (c_void_p, c_void_p, POINTER(stitch_executor_options), POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_executor_options_init": (c_int, (POINTER(stitch_executor_options), c_size_t)),
        "stitch_executor_prepare": (c_int, (c_void_p, c_void_p, POINTER(c_void_p))),
        "stitch_executor_run": (c_int, (c_void_p, c_void_p, POINTER(c_void_p))),
        "stitch_executor_set_dim": (c_int, (c_void_p, c_char_p, c_int64, POINTER(c_void_p))),
        "stitch_executor_slot": (c_int, (c_void_p, c_char_p, POINTER(c_size_t), POINTER(c_void_p))),
        "stitch_executor_stats_get": (c_int, (c_void_p, POINTER(stitch_executor_stats))),
        "stitch_free": (None, (c_void_p,)),
        "stitch_http_options_init": (c_int, (POINTER(stitch_http_options), c_size_t)),
        "stitch_image_arch": (c_char_p, (c_void_p,)),
        "stitch_image_cached": (c_int, (c_void_p,)),
        "stitch_image_data": (c_void_p, (c_void_p, POINTER(c_size_t))),
        "stitch_image_diagnostic": (c_int, (c_void_p, c_size_t, POINTER(stitch_diagnostic))),
        "stitch_image_diagnostic_count": (c_size_t, (c_void_p,)),
        "stitch_image_find": (c_int, (c_void_p, c_char_p, POINTER(c_size_t))),
        "stitch_image_free": (None, (c_void_p,)),
        "stitch_image_is_ptx": (c_int, (c_void_p,)),
        "stitch_image_kernel": (c_int, (c_void_p, c_size_t, POINTER(stitch_kernel_info))),
        "stitch_image_kernel_count": (c_size_t, (c_void_p,)),
        "stitch_image_log": (c_char_p, (c_void_p,)),
        "stitch_image_milliseconds": (c_double, (c_void_p,)),
        "stitch_image_param": (c_int, (c_void_p, c_size_t, c_size_t, POINTER(stitch_param_info))),
        "stitch_interface_add_tensor": (c_int, (c_void_p, c_int, c_char_p, c_int, c_size_t, POINTER(c_char_p), POINTER(c_void_p))),
        "stitch_interface_dim": (c_int, (c_void_p, c_size_t, POINTER(c_char_p), POINTER(c_int64))),
        "stitch_interface_dim_count": (c_size_t, (c_void_p,)),
        "stitch_interface_find": (c_int, (c_void_p, c_char_p, POINTER(c_size_t))),
        "stitch_interface_free": (None, (c_void_p,)),
        "stitch_interface_new": (c_int, (c_void_p, POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_interface_set_dim": (c_int, (c_void_p, c_char_p, c_int64, POINTER(c_void_p))),
        "stitch_interface_tensor": (c_int, (c_void_p, c_size_t, POINTER(stitch_tensor_info))),
        "stitch_interface_tensor_count": (c_size_t, (c_void_p,)),
        "stitch_model_complete": (c_int, (c_void_p, POINTER(stitch_request), POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_model_complete_many": (c_int, (c_void_p, POINTER(stitch_request), c_size_t, POINTER(c_int), POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_model_free": (None, (c_void_p,)),
        "stitch_model_new_host": (c_int, (c_void_p, stitch_model_fn, c_void_p, POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_model_new_http": (c_int, (c_void_p, POINTER(stitch_http_options), POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_model_new_record": (c_int, (c_void_p, c_void_p, c_char_p, POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_model_new_relay": (c_int, (c_void_p, c_char_p, POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_model_new_replay": (c_int, (c_void_p, c_char_p, c_int, POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_model_open": (c_int, (c_void_p, c_char_p, POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_model_set_budget": (None, (c_void_p, c_void_p)),
        "stitch_next": (c_int, (POINTER(stitch_attempt), c_size_t, c_int32, POINTER(stitch_policy), POINTER(stitch_decision), POINTER(c_void_p))),
        "stitch_plan": (c_int, (c_void_p, c_void_p, POINTER(stitch_plan_options), POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_plan_free": (None, (c_void_p,)),
        "stitch_plan_json": (c_char_p, (c_void_p,)),
        "stitch_plan_options_init": (c_int, (POINTER(stitch_plan_options), c_size_t)),
        "stitch_plan_parse": (c_int, (c_void_p, c_char_p, POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_plan_strategy": (c_char_p, (c_void_p,)),
        "stitch_plan_subtask": (c_int, (c_void_p, c_size_t, POINTER(c_char_p), POINTER(c_char_p), POINTER(c_char_p), POINTER(c_char_p))),
        "stitch_plan_subtask_count": (c_size_t, (c_void_p,)),
        "stitch_profile_advice_count": (c_size_t, (c_void_p,)),
        "stitch_profile_advice_get": (c_int, (c_void_p, c_size_t, POINTER(stitch_profile_advice))),
        "stitch_profile_free": (None, (c_void_p,)),
        "stitch_profile_json": (c_char_p, (c_void_p,)),
        "stitch_profile_kernel_count": (c_size_t, (c_void_p,)),
        "stitch_profile_options_init": (c_int, (POINTER(stitch_profile_options), c_size_t)),
        "stitch_profile_region": (c_int, (c_void_p, stitch_region_fn, c_void_p, POINTER(stitch_profile_options), POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_profile_task": (c_int, (c_void_p, c_void_p, POINTER(stitch_profile_options), POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_profile_text": (c_int, (c_void_p, c_size_t, POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_profile_verdict_get": (c_int, (c_void_p, c_size_t, POINTER(stitch_profile_verdict))),
        "stitch_program_compile": (c_int, (c_void_p, POINTER(stitch_compile_options), POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_program_free": (None, (c_void_p,)),
        "stitch_program_hash": (c_char_p, (c_void_p,)),
        "stitch_program_interface": (c_void_p, (c_void_p,)),
        "stitch_program_json": (c_char_p, (c_void_p,)),
        "stitch_program_limits_init": (c_int, (POINTER(stitch_program_limits), c_size_t)),
        "stitch_program_load": (c_int, (c_void_p, c_char_p, POINTER(stitch_program_limits), POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_program_load_memory": (c_int, (c_void_p, c_void_p, c_size_t, POINTER(stitch_program_limits), POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_program_parse": (c_int, (c_void_p, c_char_p, c_char_p, POINTER(stitch_program_limits), POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_program_save": (c_int, (c_void_p, c_char_p, POINTER(c_void_p))),
        "stitch_program_save_memory": (c_int, (c_void_p, POINTER(c_void_p), POINTER(c_size_t), POINTER(c_void_p))),
        "stitch_program_source": (c_char_p, (c_void_p,)),
        "stitch_program_validate": (c_int, (c_void_p, c_void_p, c_char_p, POINTER(c_void_p))),
        "stitch_reply_cost": (c_double, (c_void_p,)),
        "stitch_reply_finish": (c_char_p, (c_void_p,)),
        "stitch_reply_free": (None, (c_void_p,)),
        "stitch_reply_milliseconds": (c_double, (c_void_p,)),
        "stitch_reply_model": (c_char_p, (c_void_p,)),
        "stitch_reply_notice": (c_char_p, (c_void_p,)),
        "stitch_reply_reasoning": (c_char_p, (c_void_p,)),
        "stitch_reply_set": (c_int, (c_void_p, c_char_p, c_char_p, c_int64, c_int64)),
        "stitch_reply_text": (c_char_p, (c_void_p,)),
        "stitch_reply_tokens_in": (c_int64, (c_void_p,)),
        "stitch_reply_tokens_out": (c_int64, (c_void_p,)),
        "stitch_report_feedback": (c_int, (c_void_p, c_size_t, POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_report_fingerprint": (c_char_p, (c_void_p,)),
        "stitch_report_free": (None, (c_void_p,)),
        "stitch_report_json": (c_char_p, (c_void_p,)),
        "stitch_report_new_format_failure": (c_int, (c_void_p, c_void_p, POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_report_profile": (c_void_p, (c_void_p,)),
        "stitch_report_stage": (c_int, (c_void_p, c_int, POINTER(c_int), POINTER(c_double), POINTER(c_char_p))),
        "stitch_report_summary_get": (c_int, (c_void_p, POINTER(stitch_report_summary))),
        "stitch_report_text": (c_char_p, (c_void_p,)),
        "stitch_request_init": (c_int, (POINTER(stitch_request), c_size_t)),
        "stitch_stage_name": (c_char_p, (c_int,)),
        "stitch_status_name": (c_char_p, (c_int,)),
        "stitch_status_text": (c_char_p, (c_int,)),
        "stitch_task_add_baseline_fn": (c_int, (c_void_p, c_char_p, c_int, stitch_reference_fn, c_void_p, POINTER(c_void_p))),
        "stitch_task_add_baseline_program": (c_int, (c_void_p, c_char_p, c_int, c_void_p, POINTER(c_void_p))),
        "stitch_task_add_tensor": (c_int, (c_void_p, c_int, c_char_p, c_int, c_size_t, POINTER(c_char_p), POINTER(stitch_dist), POINTER(c_void_p))),
        "stitch_task_admit": (c_int, (c_void_p, c_void_p, POINTER(stitch_admit_options), POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_task_baseline": (c_int, (c_void_p, c_size_t, POINTER(c_char_p), POINTER(c_int))),
        "stitch_task_baseline_count": (c_size_t, (c_void_p,)),
        "stitch_task_description": (c_char_p, (c_void_p,)),
        "stitch_task_free": (None, (c_void_p,)),
        "stitch_task_hash": (c_int, (c_void_p, POINTER(c_char), POINTER(c_void_p))),
        "stitch_task_interface": (c_void_p, (c_void_p,)),
        "stitch_task_is_reduced": (c_int, (c_void_p,)),
        "stitch_task_load": (c_int, (c_void_p, c_char_p, POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_task_name": (c_char_p, (c_void_p,)),
        "stitch_task_new": (c_int, (c_void_p, c_char_p, POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_task_parse": (c_int, (c_void_p, c_char_p, c_char_p, POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_task_precision": (c_int, (c_void_p,)),
        "stitch_task_set_data": (c_int, (c_void_p, c_char_p, c_void_p, c_uint64, POINTER(c_void_p))),
        "stitch_task_set_dim": (c_int, (c_void_p, c_char_p, c_int64, POINTER(c_void_p))),
        "stitch_task_set_flops": (c_int, (c_void_p, c_char_p, POINTER(c_void_p))),
        "stitch_task_set_precision": (c_int, (c_void_p, c_int, POINTER(c_void_p))),
        "stitch_task_set_reduced_dim": (c_int, (c_void_p, c_char_p, c_int64, POINTER(c_void_p))),
        "stitch_task_set_reference_fn": (c_int, (c_void_p, stitch_reference_fn, c_void_p, c_int, POINTER(c_void_p))),
        "stitch_task_set_reference_program": (c_int, (c_void_p, c_void_p, c_int, POINTER(c_void_p))),
        "stitch_task_set_reference_tensors": (c_int, (c_void_p, c_char_p, POINTER(c_void_p))),
        "stitch_task_set_text": (c_int, (c_void_p, c_char_p, c_char_p, POINTER(c_void_p))),
        "stitch_task_set_tolerance": (c_int, (c_void_p, c_double, c_double, POINTER(c_void_p))),
        "stitch_task_set_weights_file": (c_int, (c_void_p, c_char_p, POINTER(c_void_p))),
        "stitch_task_source": (c_char_p, (c_void_p,)),
        "stitch_task_tolerance": (None, (c_void_p, POINTER(c_double), POINTER(c_double))),
        "stitch_task_use_reduced": (c_int, (c_void_p, c_int, POINTER(c_void_p))),
        "stitch_trace_attribute": (c_int, (c_void_p, c_void_p, c_uint64, POINTER(c_void_p))),
        "stitch_trace_begin": (c_int, (c_void_p, POINTER(stitch_trace_options), POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_trace_copy_count": (c_size_t, (c_void_p,)),
        "stitch_trace_copy_get": (c_int, (c_void_p, c_size_t, POINTER(stitch_trace_copy))),
        "stitch_trace_count": (c_size_t, (c_void_p,)),
        "stitch_trace_end": (c_int, (c_void_p, POINTER(c_void_p))),
        "stitch_trace_free": (None, (c_void_p,)),
        "stitch_trace_gap_count": (c_size_t, (c_void_p,)),
        "stitch_trace_gap_get": (c_int, (c_void_p, c_size_t, POINTER(stitch_trace_gap))),
        "stitch_trace_json": (c_int, (c_void_p, POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_trace_kernel_count": (c_size_t, (c_void_p,)),
        "stitch_trace_kernel_get": (c_int, (c_void_p, c_size_t, POINTER(stitch_trace_kernel))),
        "stitch_trace_kind_name": (c_char_p, (c_int,)),
        "stitch_trace_options_init": (c_int, (POINTER(stitch_trace_options), c_size_t)),
        "stitch_trace_record_get": (c_int, (c_void_p, c_size_t, POINTER(stitch_trace_record))),
        "stitch_trace_summary_get": (c_int, (c_void_p, POINTER(stitch_trace_summary))),
        "stitch_trace_text": (c_int, (c_void_p, c_size_t, POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_verify": (c_int, (c_void_p, c_void_p, c_void_p, POINTER(stitch_verify_options), POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_verify_options_init": (c_int, (POINTER(stitch_verify_options), c_size_t)),
        "stitch_verify_program": (c_int, (c_void_p, c_void_p, c_void_p, POINTER(stitch_verify_options), POINTER(c_void_p), POINTER(c_void_p))),
        "stitch_version": (c_uint32, ()),
        "stitch_version_string": (c_char_p, ()),
    }
