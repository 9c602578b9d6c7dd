"""What the driver of a real GPU says, word for word: an H100 of 80 GB under driver 580.159.04 (open kernel
modules) and Linux 6.18.44, alone in its machine. Recorded where `make gpu` ran."""

UUID = "GPU-5c4e07fd-6404-1575-a9fa-7331bdac5fd7"
MODEL = "NVIDIA H100 80GB HBM3"
BUS = "0000:00:06.0"

# /proc/devices, without what is no device of GPUs but the neighbours of their numbers
DEVICES = """\
Character devices:
  1 mem
  5 /dev/tty
  5 /dev/console
 10 misc
136 pts
195 nvidia
195 nvidiactl
203 cpu/cpuid
231 infiniband_mad
231 infiniband_verbs
238 nvidia-uvm
239 nvidia-nvswitch
240 nvidia-nvlink
241 nvidia-caps
242 nvidia-caps-imex-channels
243 hidraw
254 ndctl

Block devices:
  7 loop
253 zram
254 virtblk
259 blkext
"""
# below /proc/driver/nvidia
FILES = {
    f"gpus/{BUS}/information": f"""\
Model: \t\t {MODEL}
IRQ:   \t\t 41
GPU UUID: \t {UUID}
Video BIOS: \t 96.00.da.00.0c
Bus Type: \t PCIe
DMA Size: \t 52 bits
DMA Mask: \t 0xfffffffffffff
Bus Location: \t {BUS}
Device Minor: \t 0
GPU Firmware: \t 580.159.04
GPU Excluded:\t No
""",
    "capabilities/mig/config": "DeviceFileMinor: 1\nDeviceFileMode: 256\nDeviceFileModify: 1\n",
    "capabilities/mig/monitor": "DeviceFileMinor: 2\nDeviceFileMode: 292\nDeviceFileModify: 1\n",
    "capabilities/fabric-imex-mgmt": "DeviceFileMinor: 4323\nDeviceFileMode: 256\nDeviceFileModify: 1\n",
}
# `nvidia-smi --query-gpu=… --format=csv,noheader,nounits`, by its names of the fields
ANSWERS = {
    "index": "0",
    "uuid": UUID,
    "name": MODEL,
    "memory.total": "81559",
    "pci.bus_id": "00000000:00:06.0",
    "ecc.errors.uncorrected.volatile.total": "0",
    "ecc.errors.uncorrected.aggregate.total": "0",
    "retired_pages.pending": "[N/A]",
    "remapped_rows.pending": "No",
    "remapped_rows.failure": "No",
    "pcie.link.width.current": "16",
    "pcie.link.width.max": "16",
    "utilization.gpu": "0",
}
UNKNOWN_FIELD = 'Field "nonsense" is not a valid field to query.\n\n'  # and it exits with 2
# index, uuid, utilization.gpu, memory.used and power.draw, while a job computes and before it
BUSY = f"0, {UUID}, 99, 4623, 339.83\n"
IDLE = f"0, {UUID}, 0, 0, 72.44\n"
# the kernel's log, of a program that wrote where no memory is
XID = (
    "NVRM: Xid (PCI:0000:00:06): 31, pid=3340, name=python3, channel 0x0000000a, intr 00000000. MMU Fault: "
    "ENGINE GRAPHICS GPC1 GPCCLIENT_T1_8 faulted @ 0x0_00001000. Fault is of type FAULT_PDE "
    "ACCESS_TYPE_VIRT_WRITE"
)
