"""What this machine is quick at, for tests that train."""

import torch

_CAN = torch.cpu.get_capabilities()
FAST = "bf16" if _CAN.get("avx512_bf16") or _CAN.get("amx_bf16") else "fp32"  # elsewhere bf16 takes three times as long
