"""Digests of runs: what lists and searches read instead of events. The table may be emptied at any time."""

from alembic import op

revision = "0003"
down_revision = "0002"

TABLE = """
CREATE TABLE digests (
    kind TEXT COLLATE "C" NOT NULL, run TEXT COLLATE "C" NOT NULL, seq BIGINT NOT NULL,
    data TEXT COLLATE "C" NOT NULL, PRIMARY KEY (kind, run));
"""


def upgrade() -> None:
    """Makes the table."""
    op.execute(TABLE)


def downgrade() -> None:
    """Archives are not taken back to an older schema."""
    raise NotImplementedError("an archive is not taken back to an older schema")
