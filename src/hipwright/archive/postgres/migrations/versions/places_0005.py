"""The groups of verified programs, which a search reads instead of looking for each among the programs."""

from alembic import op

revision = "0005"
down_revision = "0004"

TABLE = """
CREATE TABLE places (
    place TEXT COLLATE "C" PRIMARY KEY, usable BOOLEAN NOT NULL, refused BOOLEAN NOT NULL);
INSERT INTO places SELECT place, bool_or(kind < 9), bool_or(kind = 9) FROM verified GROUP BY place;
"""


def upgrade() -> None:
    """Makes the table."""
    op.execute(TABLE)


def downgrade() -> None:
    """Archives are not taken back to an older schema."""
    raise NotImplementedError("an archive is not taken back to an older schema")
