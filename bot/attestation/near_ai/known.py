"""What was measured on NEAR AI's machines before, to compare pins with that are being made.

From genuine quotes of April to June 2026. It proves nothing: no check rests on it.
"""

from collections.abc import Mapping
from typing import Final

_OF_THE_GATEWAY: Final = """
f06dfda6dce1cf904d4e2bab1dc370634cf95cefa2ceb2de2eee127c9382698090d7a4a13e14c536ec6c9c3c8fa87077
fb14dc139f33d6fcf474bc8332cac001259fb31cfbcb6b34d4ceeb552a2c4466884a0cbde45ad98a05c5c060c23ad65a
a7b523278d4f914ee8df0ec80cd1c3d498cbf1152b0c5eaf65bad9425072874a3fcf891e8b01713d3d9937e3e0d26c15
24847f5c5a2360d030bc4f7b8577ce32e87c4d051452c937e91220cab69542daef83433947c492b9c201182fc9769bbe
da9a3d5cc196a1a76d953fb27069be428ddf60a1ce10b0534c3cf968d3053fde
f550fdfb4eb8ad787c1bcd423f091cbb4a4431ae
"""
_OF_MODELS: Final = """
b24d3b24e9e3c16012376b52362ca09856c4adecb709d5fac33addf1c47e193da075b125b6c364115771390a5461e217
bc122d143ab768565ba5c3774ff5f03a63c89a4df7c1f5ea38d3bd173409d14f8cbdcc36d40e703cccb996a9d9687590
c0445b704e4c48139496ae337423ddb1dcee3a673fd5fb60a53d562f127d235f11de471a7b4ee12c9027c829786757dc
564622c7ddc55a53272cc9f0956d29b3f7e0dd18ede432720b71fd89e5b5d76cb0b99be7b7ff2a6a92b89b6b01643135
9b69bb1698bacbb6985409a2c272bcb892e09cdcea63d5399c6768b67d3ff677
2c0a0c96cb6dbd659bf1446e2f3fce58172ff91b
"""
"""MRTD, RTMR0 to 2, id of the image, id of the application."""

_KEY_SERVICE: Final = (
    "3059301306072a8648ce3d020106082a8648ce3d03010703420004228f800590a10442cba9d0e6adb2fa9f195eea"
    "9e75e23dd35990d52b59dda2415a63674c38adebde4ffd4d4b265bf818985933820c8053cee3ce29b5fb0fbcbc"
)

KNOWN: Final[Mapping[str, str]] = {
    **dict.fromkeys(_OF_THE_GATEWAY.split(), "seen on NEAR AI's gateway, April to June 2026"),
    **dict.fromkeys(_OF_MODELS.split(), "seen on NEAR AI's model machines, April to June 2026"),
    _KEY_SERVICE: "seen on all of NEAR AI's machines, April to June 2026",
}
"""Words by a measurement in hex."""
