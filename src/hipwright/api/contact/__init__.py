"""First contact: what a machine does with all that hipwright needs of an AMD GPU, in one archive (docs/contact.md)."""

from hipwright.api.contact.run import ContactRequest, run_contact
from hipwright.api.contact.steps import ContactReport, Step

__all__ = ["ContactReport", "ContactRequest", "Step", "run_contact"]
