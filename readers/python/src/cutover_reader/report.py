"""What is said of a table."""

from dataclasses import asdict, dataclass, field
from typing import Literal

Rule = Literal["R1", "R2", "R3", "R4", "R5", "R6", "R7"]
Verdict = Literal["healthy", "broken", "inconclusive"]


@dataclass(frozen=True)
class Finding:
    """A rule of PROTOCOL.md that a version breaks."""

    version: int
    rule: Rule
    message: str
    file: str | None = None


@dataclass
class Report:
    """A verdict and what leads to it; `older_findings` were healed by a later reload."""

    uri: str
    verdict: Verdict = "inconclusive"
    since_version: int | None = None
    version: int | None = None
    connector: str | None = None
    generation: int | None = None
    cutover: int | None = None
    last_step: int | None = None
    epoch: int | None = None
    findings: list[Finding] = field(default_factory=list)
    older_findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict:
        return asdict(self)
