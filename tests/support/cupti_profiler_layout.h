/* SPDX-License-Identifier: MIT
 *
 * Compares what lib/cuda/cupti_profiler.h declares with the real headers, where there are some, while it is compiled.
 * The header of the host API includes a C++ header that its declarations do not need: an empty one stands in
 * (cupti_shim/string).
 */
#ifndef STITCH_TESTS_CUPTI_PROFILER_LAYOUT_H
#define STITCH_TESTS_CUPTI_PROFILER_LAYOUT_H

#include "cuda/cupti.h"
#include "cupti_layout.h"

#if __has_include(<cupti_range_profiler.h>) && __has_include(<cupti_profiler_host.h>) && __has_include(<string>)
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>

/* At least as long: later versions append. */
#define SAME_STRUCT(mine, their)                                                                                       \
    _Static_assert(mine##_SIZE <= their##_STRUCT_SIZE, #their);                                                        \
    _Static_assert(CUPTI_API_VERSION > 130001 || mine##_SIZE == their##_STRUCT_SIZE, #their)

SAME_STRUCT(STITCH__CUPTI_PROFILER_INIT, CUpti_Profiler_Initialize_Params);
SAME_FIELD(stitch__cupti_profiler_init, CUpti_Profiler_Initialize_Params, size, structSize);
SAME_FIELD(stitch__cupti_profiler_init, CUpti_Profiler_Initialize_Params, priv, pPriv);
SAME_STRUCT(STITCH__CUPTI_DEVICE_SUPPORTED, CUpti_Profiler_DeviceSupported_Params);
SAME_FIELD(stitch__cupti_device_supported, CUpti_Profiler_DeviceSupported_Params, size, structSize);
SAME_FIELD(stitch__cupti_device_supported, CUpti_Profiler_DeviceSupported_Params, priv, pPriv);
SAME_FIELD(stitch__cupti_device_supported, CUpti_Profiler_DeviceSupported_Params, device, cuDevice);
SAME_FIELD(stitch__cupti_device_supported, CUpti_Profiler_DeviceSupported_Params, supported, isSupported);
SAME_FIELD(stitch__cupti_device_supported, CUpti_Profiler_DeviceSupported_Params, architecture, architecture);
SAME_FIELD(stitch__cupti_device_supported, CUpti_Profiler_DeviceSupported_Params, sli, sli);
SAME_FIELD(stitch__cupti_device_supported, CUpti_Profiler_DeviceSupported_Params, vgpu, vGpu);
SAME_FIELD(stitch__cupti_device_supported, CUpti_Profiler_DeviceSupported_Params, confidential, confidentialCompute);
SAME_FIELD(stitch__cupti_device_supported, CUpti_Profiler_DeviceSupported_Params, mining, cmp);
SAME_FIELD(stitch__cupti_device_supported, CUpti_Profiler_DeviceSupported_Params, wsl, wsl);
SAME_FIELD(stitch__cupti_device_supported, CUpti_Profiler_DeviceSupported_Params, api, api);
SAME_STRUCT(STITCH__CUPTI_CHIP_NAME, CUpti_Device_GetChipName_Params);
SAME_FIELD(stitch__cupti_chip_name, CUpti_Device_GetChipName_Params, size, structSize);
SAME_FIELD(stitch__cupti_chip_name, CUpti_Device_GetChipName_Params, priv, pPriv);
SAME_FIELD(stitch__cupti_chip_name, CUpti_Device_GetChipName_Params, device, deviceIndex);
SAME_FIELD(stitch__cupti_chip_name, CUpti_Device_GetChipName_Params, name, pChipName);
SAME_STRUCT(STITCH__CUPTI_AVAILABILITY, CUpti_Profiler_GetCounterAvailability_Params);
SAME_FIELD(stitch__cupti_availability, CUpti_Profiler_GetCounterAvailability_Params, size, structSize);
SAME_FIELD(stitch__cupti_availability, CUpti_Profiler_GetCounterAvailability_Params, priv, pPriv);
SAME_FIELD(stitch__cupti_availability, CUpti_Profiler_GetCounterAvailability_Params, context, ctx);
SAME_FIELD(stitch__cupti_availability, CUpti_Profiler_GetCounterAvailability_Params, image_size,
           counterAvailabilityImageSize);
SAME_FIELD(stitch__cupti_availability, CUpti_Profiler_GetCounterAvailability_Params, image, pCounterAvailabilityImage);
SAME_STRUCT(STITCH__CUPTI_HOST_INIT, CUpti_Profiler_Host_Initialize_Params);
SAME_FIELD(stitch__cupti_host_init, CUpti_Profiler_Host_Initialize_Params, size, structSize);
SAME_FIELD(stitch__cupti_host_init, CUpti_Profiler_Host_Initialize_Params, priv, pPriv);
SAME_FIELD(stitch__cupti_host_init, CUpti_Profiler_Host_Initialize_Params, type, profilerType);
SAME_FIELD(stitch__cupti_host_init, CUpti_Profiler_Host_Initialize_Params, chip, pChipName);
SAME_FIELD(stitch__cupti_host_init, CUpti_Profiler_Host_Initialize_Params, availability, pCounterAvailabilityImage);
SAME_FIELD(stitch__cupti_host_init, CUpti_Profiler_Host_Initialize_Params, host, pHostObject);
SAME_STRUCT(STITCH__CUPTI_HOST_DEINIT, CUpti_Profiler_Host_Deinitialize_Params);
SAME_FIELD(stitch__cupti_host_deinit, CUpti_Profiler_Host_Deinitialize_Params, size, structSize);
SAME_FIELD(stitch__cupti_host_deinit, CUpti_Profiler_Host_Deinitialize_Params, priv, pPriv);
SAME_FIELD(stitch__cupti_host_deinit, CUpti_Profiler_Host_Deinitialize_Params, host, pHostObject);
SAME_STRUCT(STITCH__CUPTI_METRIC_PROPERTIES, CUpti_Profiler_Host_GetMetricProperties_Params);
SAME_FIELD(stitch__cupti_metric_properties, CUpti_Profiler_Host_GetMetricProperties_Params, size, structSize);
SAME_FIELD(stitch__cupti_metric_properties, CUpti_Profiler_Host_GetMetricProperties_Params, priv, pPriv);
SAME_FIELD(stitch__cupti_metric_properties, CUpti_Profiler_Host_GetMetricProperties_Params, host, pHostObject);
SAME_FIELD(stitch__cupti_metric_properties, CUpti_Profiler_Host_GetMetricProperties_Params, metric, pMetricName);
SAME_FIELD(stitch__cupti_metric_properties, CUpti_Profiler_Host_GetMetricProperties_Params, description, pDescription);
SAME_FIELD(stitch__cupti_metric_properties, CUpti_Profiler_Host_GetMetricProperties_Params, unit, pHwUnit);
SAME_FIELD(stitch__cupti_metric_properties, CUpti_Profiler_Host_GetMetricProperties_Params, dimension, pDimUnit);
SAME_FIELD(stitch__cupti_metric_properties, CUpti_Profiler_Host_GetMetricProperties_Params, type, metricType);
SAME_STRUCT(STITCH__CUPTI_ADD_METRICS, CUpti_Profiler_Host_ConfigAddMetrics_Params);
SAME_FIELD(stitch__cupti_add_metrics, CUpti_Profiler_Host_ConfigAddMetrics_Params, size, structSize);
SAME_FIELD(stitch__cupti_add_metrics, CUpti_Profiler_Host_ConfigAddMetrics_Params, priv, pPriv);
SAME_FIELD(stitch__cupti_add_metrics, CUpti_Profiler_Host_ConfigAddMetrics_Params, host, pHostObject);
SAME_FIELD(stitch__cupti_add_metrics, CUpti_Profiler_Host_ConfigAddMetrics_Params, metrics, ppMetricNames);
SAME_FIELD(stitch__cupti_add_metrics, CUpti_Profiler_Host_ConfigAddMetrics_Params, count, numMetrics);
SAME_STRUCT(STITCH__CUPTI_CONFIG_SIZE, CUpti_Profiler_Host_GetConfigImageSize_Params);
SAME_FIELD(stitch__cupti_config_size, CUpti_Profiler_Host_GetConfigImageSize_Params, size, structSize);
SAME_FIELD(stitch__cupti_config_size, CUpti_Profiler_Host_GetConfigImageSize_Params, priv, pPriv);
SAME_FIELD(stitch__cupti_config_size, CUpti_Profiler_Host_GetConfigImageSize_Params, host, pHostObject);
SAME_FIELD(stitch__cupti_config_size, CUpti_Profiler_Host_GetConfigImageSize_Params, config_size, configImageSize);
SAME_STRUCT(STITCH__CUPTI_CONFIG_IMAGE, CUpti_Profiler_Host_GetConfigImage_Params);
SAME_FIELD(stitch__cupti_config_image, CUpti_Profiler_Host_GetConfigImage_Params, size, structSize);
SAME_FIELD(stitch__cupti_config_image, CUpti_Profiler_Host_GetConfigImage_Params, priv, pPriv);
SAME_FIELD(stitch__cupti_config_image, CUpti_Profiler_Host_GetConfigImage_Params, host, pHostObject);
SAME_FIELD(stitch__cupti_config_image, CUpti_Profiler_Host_GetConfigImage_Params, config_size, configImageSize);
SAME_FIELD(stitch__cupti_config_image, CUpti_Profiler_Host_GetConfigImage_Params, config, pConfigImage);
SAME_STRUCT(STITCH__CUPTI_PASSES, CUpti_Profiler_Host_GetNumOfPasses_Params);
SAME_FIELD(stitch__cupti_passes, CUpti_Profiler_Host_GetNumOfPasses_Params, size, structSize);
SAME_FIELD(stitch__cupti_passes, CUpti_Profiler_Host_GetNumOfPasses_Params, priv, pPriv);
SAME_FIELD(stitch__cupti_passes, CUpti_Profiler_Host_GetNumOfPasses_Params, config_size, configImageSize);
SAME_FIELD(stitch__cupti_passes, CUpti_Profiler_Host_GetNumOfPasses_Params, config, pConfigImage);
SAME_FIELD(stitch__cupti_passes, CUpti_Profiler_Host_GetNumOfPasses_Params, passes, numOfPasses);
SAME_STRUCT(STITCH__CUPTI_EVALUATE, CUpti_Profiler_Host_EvaluateToGpuValues_Params);
SAME_FIELD(stitch__cupti_evaluate, CUpti_Profiler_Host_EvaluateToGpuValues_Params, size, structSize);
SAME_FIELD(stitch__cupti_evaluate, CUpti_Profiler_Host_EvaluateToGpuValues_Params, priv, pPriv);
SAME_FIELD(stitch__cupti_evaluate, CUpti_Profiler_Host_EvaluateToGpuValues_Params, host, pHostObject);
SAME_FIELD(stitch__cupti_evaluate, CUpti_Profiler_Host_EvaluateToGpuValues_Params, data, pCounterDataImage);
SAME_FIELD(stitch__cupti_evaluate, CUpti_Profiler_Host_EvaluateToGpuValues_Params, data_size, counterDataImageSize);
SAME_FIELD(stitch__cupti_evaluate, CUpti_Profiler_Host_EvaluateToGpuValues_Params, range, rangeIndex);
SAME_FIELD(stitch__cupti_evaluate, CUpti_Profiler_Host_EvaluateToGpuValues_Params, metrics, ppMetricNames);
SAME_FIELD(stitch__cupti_evaluate, CUpti_Profiler_Host_EvaluateToGpuValues_Params, count, numMetrics);
SAME_FIELD(stitch__cupti_evaluate, CUpti_Profiler_Host_EvaluateToGpuValues_Params, values, pMetricValues);
SAME_STRUCT(STITCH__CUPTI_RANGE_ENABLE, CUpti_RangeProfiler_Enable_Params);
SAME_FIELD(stitch__cupti_range_enable, CUpti_RangeProfiler_Enable_Params, size, structSize);
SAME_FIELD(stitch__cupti_range_enable, CUpti_RangeProfiler_Enable_Params, priv, pPriv);
SAME_FIELD(stitch__cupti_range_enable, CUpti_RangeProfiler_Enable_Params, context, ctx);
SAME_FIELD(stitch__cupti_range_enable, CUpti_RangeProfiler_Enable_Params, profiler, pRangeProfilerObject);
SAME_STRUCT(STITCH__CUPTI_RANGE_OBJECT, CUpti_RangeProfiler_Disable_Params);
SAME_FIELD(stitch__cupti_range_object, CUpti_RangeProfiler_Disable_Params, size, structSize);
SAME_FIELD(stitch__cupti_range_object, CUpti_RangeProfiler_Disable_Params, priv, pPriv);
SAME_FIELD(stitch__cupti_range_object, CUpti_RangeProfiler_Disable_Params, profiler, pRangeProfilerObject);
SAME_STRUCT(STITCH__CUPTI_RANGE_OBJECT, CUpti_RangeProfiler_Start_Params);
SAME_FIELD(stitch__cupti_range_object, CUpti_RangeProfiler_Start_Params, size, structSize);
SAME_FIELD(stitch__cupti_range_object, CUpti_RangeProfiler_Start_Params, priv, pPriv);
SAME_FIELD(stitch__cupti_range_object, CUpti_RangeProfiler_Start_Params, profiler, pRangeProfilerObject);
SAME_STRUCT(STITCH__CUPTI_RANGE_STOP, CUpti_RangeProfiler_Stop_Params);
SAME_FIELD(stitch__cupti_range_stop, CUpti_RangeProfiler_Stop_Params, size, structSize);
SAME_FIELD(stitch__cupti_range_stop, CUpti_RangeProfiler_Stop_Params, priv, pPriv);
SAME_FIELD(stitch__cupti_range_stop, CUpti_RangeProfiler_Stop_Params, profiler, pRangeProfilerObject);
SAME_FIELD(stitch__cupti_range_stop, CUpti_RangeProfiler_Stop_Params, pass, passIndex);
SAME_FIELD(stitch__cupti_range_stop, CUpti_RangeProfiler_Stop_Params, nesting, targetNestingLevel);
SAME_FIELD(stitch__cupti_range_stop, CUpti_RangeProfiler_Stop_Params, complete, isAllPassSubmitted);
SAME_STRUCT(STITCH__CUPTI_RANGE_CONFIG, CUpti_RangeProfiler_SetConfig_Params);
SAME_FIELD(stitch__cupti_range_config, CUpti_RangeProfiler_SetConfig_Params, size, structSize);
SAME_FIELD(stitch__cupti_range_config, CUpti_RangeProfiler_SetConfig_Params, priv, pPriv);
SAME_FIELD(stitch__cupti_range_config, CUpti_RangeProfiler_SetConfig_Params, profiler, pRangeProfilerObject);
SAME_FIELD(stitch__cupti_range_config, CUpti_RangeProfiler_SetConfig_Params, config_size, configSize);
SAME_FIELD(stitch__cupti_range_config, CUpti_RangeProfiler_SetConfig_Params, config, pConfig);
SAME_FIELD(stitch__cupti_range_config, CUpti_RangeProfiler_SetConfig_Params, data_size, counterDataImageSize);
SAME_FIELD(stitch__cupti_range_config, CUpti_RangeProfiler_SetConfig_Params, data, pCounterDataImage);
SAME_FIELD(stitch__cupti_range_config, CUpti_RangeProfiler_SetConfig_Params, range, range);
SAME_FIELD(stitch__cupti_range_config, CUpti_RangeProfiler_SetConfig_Params, replay, replayMode);
SAME_FIELD(stitch__cupti_range_config, CUpti_RangeProfiler_SetConfig_Params, max_ranges, maxRangesPerPass);
SAME_FIELD(stitch__cupti_range_config, CUpti_RangeProfiler_SetConfig_Params, nesting_levels, numNestingLevels);
SAME_FIELD(stitch__cupti_range_config, CUpti_RangeProfiler_SetConfig_Params, min_nesting, minNestingLevel);
SAME_FIELD(stitch__cupti_range_config, CUpti_RangeProfiler_SetConfig_Params, pass, passIndex);
SAME_FIELD(stitch__cupti_range_config, CUpti_RangeProfiler_SetConfig_Params, target_nesting, targetNestingLevel);
SAME_STRUCT(STITCH__CUPTI_DATA_SIZE, CUpti_RangeProfiler_GetCounterDataSize_Params);
SAME_FIELD(stitch__cupti_data_size, CUpti_RangeProfiler_GetCounterDataSize_Params, size, structSize);
SAME_FIELD(stitch__cupti_data_size, CUpti_RangeProfiler_GetCounterDataSize_Params, priv, pPriv);
SAME_FIELD(stitch__cupti_data_size, CUpti_RangeProfiler_GetCounterDataSize_Params, profiler, pRangeProfilerObject);
SAME_FIELD(stitch__cupti_data_size, CUpti_RangeProfiler_GetCounterDataSize_Params, metrics, pMetricNames);
SAME_FIELD(stitch__cupti_data_size, CUpti_RangeProfiler_GetCounterDataSize_Params, count, numMetrics);
SAME_FIELD(stitch__cupti_data_size, CUpti_RangeProfiler_GetCounterDataSize_Params, max_ranges, maxNumOfRanges);
SAME_FIELD(stitch__cupti_data_size, CUpti_RangeProfiler_GetCounterDataSize_Params, max_nodes, maxNumRangeTreeNodes);
SAME_FIELD(stitch__cupti_data_size, CUpti_RangeProfiler_GetCounterDataSize_Params, data_size, counterDataSize);
SAME_STRUCT(STITCH__CUPTI_DATA_INIT, CUpti_RangeProfiler_CounterDataImage_Initialize_Params);
SAME_FIELD(stitch__cupti_data_init, CUpti_RangeProfiler_CounterDataImage_Initialize_Params, size, structSize);
SAME_FIELD(stitch__cupti_data_init, CUpti_RangeProfiler_CounterDataImage_Initialize_Params, priv, pPriv);
SAME_FIELD(stitch__cupti_data_init, CUpti_RangeProfiler_CounterDataImage_Initialize_Params, profiler,
           pRangeProfilerObject);
SAME_FIELD(stitch__cupti_data_init, CUpti_RangeProfiler_CounterDataImage_Initialize_Params, data_size, counterDataSize);
SAME_FIELD(stitch__cupti_data_init, CUpti_RangeProfiler_CounterDataImage_Initialize_Params, data, pCounterData);
SAME_STRUCT(STITCH__CUPTI_RANGE_DECODE, CUpti_RangeProfiler_DecodeData_Params);
SAME_FIELD(stitch__cupti_range_decode, CUpti_RangeProfiler_DecodeData_Params, size, structSize);
SAME_FIELD(stitch__cupti_range_decode, CUpti_RangeProfiler_DecodeData_Params, priv, pPriv);
SAME_FIELD(stitch__cupti_range_decode, CUpti_RangeProfiler_DecodeData_Params, profiler, pRangeProfilerObject);
SAME_FIELD(stitch__cupti_range_decode, CUpti_RangeProfiler_DecodeData_Params, dropped, numOfRangeDropped);
SAME_STRUCT(STITCH__CUPTI_DATA_INFO, CUpti_RangeProfiler_GetCounterDataInfo_Params);
SAME_FIELD(stitch__cupti_data_info, CUpti_RangeProfiler_GetCounterDataInfo_Params, size, structSize);
SAME_FIELD(stitch__cupti_data_info, CUpti_RangeProfiler_GetCounterDataInfo_Params, priv, pPriv);
SAME_FIELD(stitch__cupti_data_info, CUpti_RangeProfiler_GetCounterDataInfo_Params, data, pCounterDataImage);
SAME_FIELD(stitch__cupti_data_info, CUpti_RangeProfiler_GetCounterDataInfo_Params, data_size, counterDataImageSize);
SAME_FIELD(stitch__cupti_data_info, CUpti_RangeProfiler_GetCounterDataInfo_Params, ranges, numTotalRanges);
SAME_STRUCT(STITCH__CUPTI_RANGE_INFO, CUpti_RangeProfiler_CounterData_GetRangeInfo_Params);
SAME_FIELD(stitch__cupti_range_info, CUpti_RangeProfiler_CounterData_GetRangeInfo_Params, size, structSize);
SAME_FIELD(stitch__cupti_range_info, CUpti_RangeProfiler_CounterData_GetRangeInfo_Params, priv, pPriv);
SAME_FIELD(stitch__cupti_range_info, CUpti_RangeProfiler_CounterData_GetRangeInfo_Params, data, pCounterDataImage);
SAME_FIELD(stitch__cupti_range_info, CUpti_RangeProfiler_CounterData_GetRangeInfo_Params, data_size,
           counterDataImageSize);
SAME_FIELD(stitch__cupti_range_info, CUpti_RangeProfiler_CounterData_GetRangeInfo_Params, range, rangeIndex);
SAME_FIELD(stitch__cupti_range_info, CUpti_RangeProfiler_CounterData_GetRangeInfo_Params, delimiter, rangeDelimiter);
SAME_FIELD(stitch__cupti_range_info, CUpti_RangeProfiler_CounterData_GetRangeInfo_Params, name, rangeName);
SAME_VALUE(STITCH__CUPTI_TYPE_RANGE_PROFILER, CUPTI_PROFILER_TYPE_RANGE_PROFILER);
SAME_VALUE(STITCH__CUPTI_AUTO_RANGE, CUPTI_AutoRange);
SAME_VALUE(STITCH__CUPTI_KERNEL_REPLAY, CUPTI_KernelReplay);
SAME_VALUE(STITCH__CUPTI_API_RANGE_PROFILING, CUPTI_PROFILER_RANGE_PROFILING);
SAME_VALUE(STITCH__CUPTI_LEVEL_UNKNOWN, CUPTI_PROFILER_CONFIGURATION_UNKNOWN);
SAME_VALUE(STITCH__CUPTI_LEVEL_UNSUPPORTED, CUPTI_PROFILER_CONFIGURATION_UNSUPPORTED);
SAME_VALUE(STITCH__CUPTI_LEVEL_DISABLED, CUPTI_PROFILER_CONFIGURATION_DISABLED);
SAME_VALUE(STITCH__CUPTI_LEVEL_SUPPORTED, CUPTI_PROFILER_CONFIGURATION_SUPPORTED);
SAME_VALUE(STITCH__CUPTI_INVALID_PARAMETER, CUPTI_ERROR_INVALID_PARAMETER);
SAME_VALUE(STITCH__CUPTI_INVALID_METRIC, CUPTI_ERROR_INVALID_METRIC_NAME);
#if CUPTI_API_VERSION >= 130000
SAME_VALUE(STITCH__CUPTI_INVALID_CHIP, CUPTI_ERROR_INVALID_CHIP_NAME);
#endif
#endif

#endif
