"""Every numeric figure of a `Profile`: its unit, its meaning, and the counter or formula of each vendor."""

from __future__ import annotations

from hipwright.records import Record


class Metric(Record, frozen=True, kw_only=True):
    """One figure of a Profile. nvidia, amd: the counters or formula it comes from, "" where the vendor has none."""

    name: str
    unit: str
    meaning: str
    nvidia: str = ""
    amd: str = ""


_FIGURES = [
    (
        "duration_us",
        "us",
        "device time of the launch, counters on",
        "gpu__time_duration.sum",
        "End_Timestamp - Start_Timestamp",
    ),
    (
        "dram_read_bytes",
        "bytes",
        "read from device memory",
        "dram__bytes_read.sum",
        "32 B, 64 B and (gfx942) 128 B requests of TCC_EA(0)_RDREQ",
    ),
    (
        "dram_write_bytes",
        "bytes",
        "written to device memory",
        "dram__bytes_write.sum",
        "32 B and 64 B requests of TCC_EA(0)_WRREQ",
    ),
    (
        "dram_throughput_pct",
        "%",
        "of the peak bandwidth of device memory",
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        "bytes / duration / nominal bandwidth",
    ),
    (
        "cache_throughput_pct",
        "%",
        "of the peak of the busiest cache level",
        "max of l1tex__ and lts__throughput.avg.pct_of_peak_sustained_active / _elapsed",
        "",
    ),
    ("l2_hit_pct", "%", "L2 hits of L2 lookups", "lts__t_sector_hit_rate.pct", "TCC_HIT / (TCC_HIT + TCC_MISS)"),
    (
        "l1_hit_pct",
        "%",
        "L1 hits of L1 lookups",
        "l1tex__t_sector_hit_rate.pct",
        "1 - (TCP_TCC_READ_REQ + TCP_TCC_WRITE_REQ) / TCP_TOTAL_CACHE_ACCESSES",
    ),
    (
        "load_efficiency_pct",
        "%",
        "of the bytes that global loads fetch are used",
        "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct",
        "",
    ),
    (
        "store_efficiency_pct",
        "%",
        "the same of global stores",
        "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct",
        "",
    ),
    (
        "sectors_per_load",
        "sectors",
        "32-byte sectors that one wave's load touches",
        "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
        "",
    ),
    (
        "coalescing_pct",
        "%",
        "cache accesses a fully coalesced wave would make, of those made",
        "",
        "64 * TA_TOTAL_WAVEFRONTS / (4 * TCP_TOTAL_ACCESSES)",
    ),
    (
        "valu_pct",
        "%",
        "of the time the vector ALUs are busy (NVIDIA: the busier of FMA and ALU pipes)",
        "max of sm__inst_executed_pipe_fma, _alu.avg.pct_of_peak_sustained_active",
        "VALUBusy",
    ),
    (
        "matrix_pct",
        "%",
        "of the time the matrix units are busy",
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
        "MfmaUtil",
    ),
    (
        "compute_throughput_pct",
        "%",
        "of the peak of the busiest compute pipe",
        "sm__throughput.avg.pct_of_peak_sustained_elapsed",
        "",
    ),
    (
        "ipc",
        "per cycle",
        "instructions per cycle of an active unit",
        "sm__inst_executed.avg.per_cycle_active",
        "SQ_INSTS / SQ_BUSY_CU_CYCLES / 4",
    ),
    (
        "lanes_pct",
        "%",
        "of a wave's lanes that an instruction works on",
        "smsp__thread_inst_executed_per_inst_executed.ratio / 32",
        "VALUUtilization",
    ),
    (
        "uniform_branches_pct",
        "%",
        "of branches that all lanes take together",
        "smsp__sass_average_branch_targets_threads_uniform.pct",
        "",
    ),
    (
        "occupancy_pct",
        "%",
        "of the wave slots that were filled, on average",
        "sm__warps_active.avg.pct_of_peak_sustained_active",
        "OccupancyPercent",
    ),
    (
        "occupancy_limit_pct",
        "%",
        "that registers, LDS and block size would allow",
        "sm__maximum_warps_per_active_cycle_pct",
        "waves per SIMD by the target's own limits",
    ),
    (
        "active_waves",
        "waves",
        "resident on a unit, on average",
        "sm__warps_active.avg.per_cycle_active",
        "MeanOccupancyPerCU",
    ),
    ("waves", "waves", "launched", "smsp__warps_launched.sum", "SQ_WAVES"),
    (
        "rounds",
        "rounds",
        "times that the blocks fill the device",
        "launch__waves_per_multiprocessor",
        "blocks / blocks resident at once",
    ),
    ("registers", "per lane", "vector registers", "launch__registers_per_thread", "VGPR_Count + Accum_VGPR_Count"),
    ("lds_bytes", "bytes", "LDS of a block", "launch__shared_mem_per_block_static + _dynamic", "LDS_Block_Size"),
    (
        "scratch_bytes",
        "bytes",
        "scratch (local) memory a lane, for spills and indexed arrays",
        "from the build",
        "Scratch_Size",
    ),
    (
        "lds_bank_conflicts",
        "cycles",
        "spent on LDS bank conflicts, all units",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
        "SQ_LDS_BANK_CONFLICT",
    ),
    (
        "lds_conflict_pct",
        "%",
        "of the LDS's working time, or wavefronts, that are conflicts",
        "conflicts / l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
        "SQ_LDS_BANK_CONFLICT / SQ_LDS_IDX_ACTIVE",
    ),
]
METRICS: dict[str, Metric] = {
    name: Metric(name=name, unit=unit, meaning=meaning, nvidia=nvidia, amd=amd)
    for name, unit, meaning, nvidia, amd in _FIGURES
}
"""By the name of the figure."""
