"""The devices that an engine here would run on, asked of the driver: no CUDA context is made in this process."""

from __future__ import annotations

import ctypes
import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

DRIVER_FILE = Path("/proc/driver/nvidia/version")
GPU_FILES = Path("/proc/driver/nvidia/gpus")
CPU_FILE = Path("/proc/cpuinfo")
_NAME_BYTES = 96  # NVML_DEVICE_NAME_V2_BUFFER_SIZE and more than a UUID or a driver version takes.


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU of the machine."""

    name: str
    uuid: str


def describe(device: str) -> dict[str, Any]:
    """What evidence of a device is bound to: ``{"kind", "count", "names", "driver"}``.

    A CPU is one device, whatever its cores: the ranks share it. GPUs are those that ``CUDA_VISIBLE_DEVICES`` leaves.
    """
    if device == "cpu":
        return {"kind": "cpu", "count": 1, "names": [_cpu()], "driver": None}
    driver, gpus = _from_nvml() or _from_proc()
    seen = visible(gpus, os.environ.get("CUDA_VISIBLE_DEVICES"))
    return {"kind": device, "count": len(seen), "names": [gpu.name for gpu in seen], "driver": driver}


def visible(gpus: Sequence[Gpu], chosen: str | None) -> list[Gpu]:
    """The GPUs that CUDA shows under a value of ``CUDA_VISIBLE_DEVICES``: up to the first that there is not."""
    if chosen is None:
        return list(gpus)
    seen: list[Gpu] = []
    for part in filter(None, map(str.strip, chosen.split(","))):
        if part.isdigit():
            found = list(gpus[int(part) : int(part) + 1])
        else:
            found = [gpu for gpu in gpus if gpu.uuid and gpu.uuid.startswith(part)]
        if not found:
            break
        seen += found[:1]
    return seen


def _cpu() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", CPU_FILE.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()


def _from_nvml() -> tuple[str | None, list[Gpu]] | None:
    """Driver and GPUs as NVML tells them; None where there is none."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    if nvml.nvmlInit_v2() != 0:
        return None
    try:
        count = ctypes.c_uint()
        if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return None
        gpus = []
        for number in range(count.value):
            handle = ctypes.c_void_p()
            nvml.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(handle))
            gpus.append(Gpu(name=_text(nvml.nvmlDeviceGetName, handle), uuid=_text(nvml.nvmlDeviceGetUUID, handle)))
        return _text(nvml.nvmlSystemGetDriverVersion) or None, gpus
    finally:
        nvml.nvmlShutdown()


def _text(function: Any, *arguments: Any) -> str:
    buffer = ctypes.create_string_buffer(_NAME_BYTES)
    return buffer.value.decode() if function(*arguments, buffer, _NAME_BYTES) == 0 else ""


def _from_proc() -> tuple[str | None, list[Gpu]]:
    """The same from the driver's own files, where NVML is missing."""
    try:
        found = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", DRIVER_FILE.read_text(encoding="utf-8"))
    except OSError:
        return None, []
    gpus = []
    for file in sorted(GPU_FILES.glob("*/information")):
        rows = dict(re.findall(r"^([^:]+):\s*(.+)$", file.read_text(encoding="utf-8"), re.MULTILINE))
        gpus.append(Gpu(name=rows.get("Model", "").strip(), uuid=rows.get("GPU UUID", "").strip()))
    return (found[1] if found else None), gpus
