/* SPDX-License-Identifier: MIT
 *
 * Compares what lib/cuda/cupti_sampling.h declares with the real header, where there is one, while it is compiled.
 */
#ifndef STITCH_TESTS_CUPTI_SAMPLING_LAYOUT_H
#define STITCH_TESTS_CUPTI_SAMPLING_LAYOUT_H

#include "cuda/cupti_sampling.h"
#include "cupti_layout.h"

#if __has_include(<cupti_pcsampling.h>)
#include <cupti_pcsampling.h>

#define SAME_SIZE(mine, their) _Static_assert(sizeof(mine) == (their), #mine)

SAME_FIELD(stitch__pcs_stall, CUpti_PCSamplingStallReason, reason, pcSamplingStallReasonIndex);
SAME_FIELD(stitch__pcs_stall, CUpti_PCSamplingStallReason, samples, samples);
SAME_SIZE(stitch__pcs_stall, sizeof(CUpti_PCSamplingStallReason));
SAME_FIELD(stitch__pcs_record, CUpti_PCSamplingPCData, size, size);
SAME_FIELD(stitch__pcs_record, CUpti_PCSamplingPCData, crc, cubinCrc);
SAME_FIELD(stitch__pcs_record, CUpti_PCSamplingPCData, offset, pcOffset);
SAME_FIELD(stitch__pcs_record, CUpti_PCSamplingPCData, function, functionIndex);
SAME_FIELD(stitch__pcs_record, CUpti_PCSamplingPCData, name, functionName);
SAME_FIELD(stitch__pcs_record, CUpti_PCSamplingPCData, stall_count, stallReasonCount);
SAME_FIELD(stitch__pcs_record, CUpti_PCSamplingPCData, stalls, stallReason);
SAME_FIELD(stitch__pcs_record, CUpti_PCSamplingPCData, correlation, correlationId);
SAME_SIZE(stitch__pcs_record, sizeof(CUpti_PCSamplingPCData));
SAME_FIELD(stitch__pcs_data, CUpti_PCSamplingData, size, size);
SAME_FIELD(stitch__pcs_data, CUpti_PCSamplingData, room, collectNumPcs);
SAME_FIELD(stitch__pcs_data, CUpti_PCSamplingData, total, totalSamples);
SAME_FIELD(stitch__pcs_data, CUpti_PCSamplingData, dropped, droppedSamples);
SAME_FIELD(stitch__pcs_data, CUpti_PCSamplingData, count, totalNumPcs);
SAME_FIELD(stitch__pcs_data, CUpti_PCSamplingData, remaining, remainingNumPcs);
SAME_FIELD(stitch__pcs_data, CUpti_PCSamplingData, range, rangeId);
SAME_FIELD(stitch__pcs_data, CUpti_PCSamplingData, records, pPcData);
SAME_FIELD(stitch__pcs_data, CUpti_PCSamplingData, other_kernels, nonUsrKernelsTotalSamples);
SAME_FIELD(stitch__pcs_data, CUpti_PCSamplingData, buffer_full, hardwareBufferFull);
SAME_SIZE(stitch__pcs_data, sizeof(CUpti_PCSamplingData));
SAME_FIELD(stitch__pcs_attribute, CUpti_PCSamplingConfigurationInfo, type, attributeType);
SAME_FIELD(stitch__pcs_attribute, CUpti_PCSamplingConfigurationInfo, status, attributeStatus);
SAME_PLACE(stitch__pcs_attribute, CUpti_PCSamplingConfigurationInfo, value, attributeData);
SAME_PLACE(stitch__pcs_attribute, CUpti_PCSamplingConfigurationInfo, value.number,
           attributeData.samplingPeriodData.samplingPeriod);
SAME_PLACE(stitch__pcs_attribute, CUpti_PCSamplingConfigurationInfo, value.size,
           attributeData.hardwareBufferSizeData.hardwareBufferSize);
SAME_PLACE(stitch__pcs_attribute, CUpti_PCSamplingConfigurationInfo, value.buffer,
           attributeData.samplingDataBufferData.samplingDataBuffer);
SAME_PLACE(stitch__pcs_attribute, CUpti_PCSamplingConfigurationInfo, value.reasons.count,
           attributeData.stallReasonData.stallReasonCount);
SAME_PLACE(stitch__pcs_attribute, CUpti_PCSamplingConfigurationInfo, value.reasons.list,
           attributeData.stallReasonData.pStallReasonIndex);
SAME_SIZE(stitch__pcs_attribute, sizeof(CUpti_PCSamplingConfigurationInfo));
SAME_FIELD(stitch__pcs_attributes, CUpti_PCSamplingConfigurationInfoParams, ctx, ctx);
SAME_FIELD(stitch__pcs_attributes, CUpti_PCSamplingConfigurationInfoParams, count, numAttributes);
SAME_FIELD(stitch__pcs_attributes, CUpti_PCSamplingConfigurationInfoParams, list, pPCSamplingConfigurationInfo);
SAME_SIZE(stitch__pcs_attributes, CUpti_PCSamplingConfigurationInfoParamsSize);
SAME_FIELD(stitch__pcs_context, CUpti_PCSamplingEnableParams, ctx, ctx);
SAME_SIZE(stitch__pcs_context, CUpti_PCSamplingEnableParamsSize);
SAME_SIZE(stitch__pcs_context, CUpti_PCSamplingDisableParamsSize);
SAME_SIZE(stitch__pcs_context, CUpti_PCSamplingStartParamsSize);
SAME_SIZE(stitch__pcs_context, CUpti_PCSamplingStopParamsSize);
SAME_FIELD(stitch__pcs_get_data, CUpti_PCSamplingGetDataParams, data, pcSamplingData);
SAME_SIZE(stitch__pcs_get_data, CUpti_PCSamplingGetDataParamsSize);
SAME_FIELD(stitch__pcs_reason_count, CUpti_PCSamplingGetNumStallReasonsParams, count, numStallReasons);
SAME_SIZE(stitch__pcs_reason_count, CUpti_PCSamplingGetNumStallReasonsParamsSize);
SAME_FIELD(stitch__pcs_reasons, CUpti_PCSamplingGetStallReasonsParams, count, numStallReasons);
SAME_FIELD(stitch__pcs_reasons, CUpti_PCSamplingGetStallReasonsParams, indices, stallReasonIndex);
SAME_FIELD(stitch__pcs_reasons, CUpti_PCSamplingGetStallReasonsParams, names, stallReasons);
SAME_SIZE(stitch__pcs_reasons, CUpti_PCSamplingGetStallReasonsParamsSize);
SAME_FIELD(stitch__cubin_crc, CUpti_GetCubinCrcParams, cubin_size, cubinSize);
SAME_FIELD(stitch__cubin_crc, CUpti_GetCubinCrcParams, cubin, cubin);
SAME_FIELD(stitch__cubin_crc, CUpti_GetCubinCrcParams, crc, cubinCrc);
SAME_SIZE(stitch__cubin_crc, CUpti_GetCubinCrcParamsSize);
SAME_VALUE(STITCH__PCS_REASON_NAME, CUPTI_STALL_REASON_STRING_SIZE);
SAME_VALUE(STITCH__PCS_PERIOD, CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_SAMPLING_PERIOD);
SAME_VALUE(STITCH__PCS_REASONS, CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_STALL_REASON);
SAME_VALUE(STITCH__PCS_HARDWARE_BUFFER, CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_HARDWARE_BUFFER_SIZE);
SAME_VALUE(STITCH__PCS_MODE, CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_COLLECTION_MODE);
SAME_VALUE(STITCH__PCS_START_STOP, CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_ENABLE_START_STOP_CONTROL);
SAME_VALUE(STITCH__PCS_FORMAT, CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_OUTPUT_DATA_FORMAT);
SAME_VALUE(STITCH__PCS_DATA_BUFFER, CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_SAMPLING_DATA_BUFFER);
SAME_VALUE(STITCH__PCS_CONTINUOUS, CUPTI_PC_SAMPLING_COLLECTION_MODE_CONTINUOUS);
SAME_VALUE(STITCH__PCS_PARSED, CUPTI_PC_SAMPLING_OUTPUT_DATA_FORMAT_PARSED);
#endif

#endif
