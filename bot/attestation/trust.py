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


@dataclass(frozen=True, slots=True)
class Trust:
    """Roots and the one trusted service.

    Attributes:
        intel_root: DER certificate in place of Intel's SGX root; None: Intel's own, pinned above
            and inside dcap-qvl.
        nras_url: NVIDIA's attestation service; also the issuer in its tokens.
        tls: for requests to services; None: the usual certificate authorities.
    """

    intel_root: bytes | None = None
    nvidia_root_sha256: bytes = NVIDIA_DEVICE_IDENTITY_CA_SHA256
    nras_url: str = "https://nras.attestation.nvidia.com"
    tls: ssl.SSLContext | None = None
    min_tcb_evaluation: int = MIN_TCB_EVALUATION


REAL: Final = Trust()
