"""Trust anchors of a verification: the whole list.

The program itself always uses `REAL`. Only tests pass another value, as an argument: no setting,
environment variable or flag leads here.
"""

import ssl
from dataclasses import dataclass
from typing import Final

INTEL_SGX_ROOT_CA_SHA256: Final = bytes.fromhex(
    "44a0196b2b99f889b8e149e95b807a350e7424964399e885a7cbb8ccfab674d3"
)
"""SHA-256 of the DER certificate of Intel's SGX root; dcap-qvl pins it as well."""

NVIDIA_DEVICE_IDENTITY_CA_SHA256: Final = bytes.fromhex(
    "102bf659d5419614c9d8e6aecebc80454eb26b1df6a769ac720b9a690b167b48"
)
"""SHA-256 of the DER certificate of NVIDIA's Device Identity CA, the root of every GPU's chain."""


MIN_TCB_EVALUATION: Final = 19
"""The oldest of Intel's TCB evaluations that counts, from June 2026.

Several are valid at once, and an older one may accept a platform that a newer one does not. Raise
the number in a release once Intel's standard evaluation is newer.
"""

_MODULES: Final = """\
1.5.01
9790d89a10210ec6968a773cee2ca05b5aa97309f36727a968527be4606fc19e6f73acce350946c9d46a9bf7a63f8430
1.5.05
1cc6a17ab799e9a693fac7536be61c12ee1e0fabada82d0c999e08ccee2aa86de77b0870f558c570e7ffe55d6d47fa04
1.5.06
5b38e33a6487958b72c3c12a938eaa5e3fd4510c51aeeab58c7d5ecee41d7c436489d6c8e4f92f160b7cad34207b00c1
1.5.08
49b66faa451d19ebbdbe89371b8daf2b65aa3984ec90110343e9e2eec116af08850fa20e3b1aa9a874d77a65380ee7e6
1.5.09
bfb360ac8e6233a1bca1433caf7382d95c165b4a77fb00bf1435e5a08f300cdfead5ee68461afd9b6c728dce7534602d
1.5.13
27b67e0b20508f0acfb8a99df4283a7c86ae569d85d556a91d4eb20e56b5d42d5e65b31a3a6996e8e461f104f32fdeec
1.5.16
7bf063280e94fb051f5dd7b1fc59ce9aac42bb961df8d44b709c9b0ff87a7b4df648657ba6d1189589feab1d5a3c9a9d
1.5.20
d0d80c085166ba78ccc69af268e5753cf0f3394523cb4ff7c50b08d9265c82489c099c377be6a400e4d2b57da924012c
1.5.24
489e585f1c54bc5a02066c8c6ec21619ff0334ec6f21e07e2a35202c59183789c8057e7d97dd591bb08314b185819e72
1.5.25
fca4ff221293807e3d247416299ca39a236872df4eb414567ca96072d3fde7dead740f807eefe2f7d938499c03cc8aba
1.5.28
346bc77a1846cac214dd2e8edeb9ee4349449d6c3f9ff2c52149a634c27b7fd1bd314c2ef6b973eeebd55742952531a1
1.5.34
ab62561a173acbd18ee50ff37750db44184c6cf5e886df74247cc575e163b04c34b9e18374757c235affa614d4127f6b
2.0.02
685f891ea5c20e8fa27b151bf34bf3b50fbaf7143cc53662727cbdb167c0ad8385f1f6f3571539a91e104a1c96d75e04
2.0.04
64cae497e0c6221176fe8d3bc9d0cf25b4c97bb24cc16499f77102451f15bb24249f1aa3e5d3bf8897be74ad6c84e648
2.0.08
476a2997c62bccc78370913d0a80b956e3721b24272bc66c4d6307ced4be2865c40e26afac75f12df3425b03eb59ea7c
2.0.12
87bdf50356b95e264a5d0807016b9b8ab7568d0857d27eddbe847f98184a786e0f3eecf2fabd3b6d23f71f2ae50300f4
2.0.14
aef4ed3e686fe6cf44c9a8d1cc63105443b558ac4f40c282abf78271e9a4586c50408c8584c7b43fd21edb736700ba5f
2.0.16
f40772d82608da5443887dd7247be3e0092927e62409a9bb8da98eaed9017704be075466a13d3ca30501000d69407495
2.0.18
2d2de102461684f14c8d0984a09d895e3e9e15944ce020a03b977e1f114d5e1ed32ef666a47fd19a5851b3800eda3afa
"""
_WORDS: Final = _MODULES.split()
TDX_MODULES: Final = dict(zip(_WORDS[1::2], _WORDS[::2], strict=True))
"""Versions of the TDX module by MRSEAM, from the README of
github.com/intel/confidential-computing.tdx.tdx-module, which also has their source. Genuine quotes
had 1.5.05, 1.5.06, 1.5.08, 1.5.16 and 1.5.20."""


@dataclass(frozen=True, slots=True)
class Trust:
    """Roots and the one trusted service.

    Attributes:
        intel_root: DER certificate in place of Intel's SGX root; None is Intel's own, pinned
            above and inside dcap-qvl.
        nras_url: NVIDIA's attestation service; also the issuer in its tokens.
        tls: for requests to services; None is the usual certificate authorities.
    """

    intel_root: bytes | None = None
    nvidia_root_sha256: bytes = NVIDIA_DEVICE_IDENTITY_CA_SHA256
    nras_url: str = "https://nras.attestation.nvidia.com"
    tls: ssl.SSLContext | None = None
    min_tcb_evaluation: int = MIN_TCB_EVALUATION


REAL: Final = Trust()
