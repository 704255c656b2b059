"""Leases of pieces of work, and which attempt's result was taken."""

from alembic import op

revision = "0002"
down_revision = "0001"

TABLES = """
CREATE TABLE leases (
    run TEXT COLLATE "C" NOT NULL REFERENCES runs(id), number BIGINT NOT NULL, attempt BIGINT NOT NULL,
    holder TEXT COLLATE "C" NOT NULL, until DOUBLE PRECISION NOT NULL, PRIMARY KEY (run, number, attempt));
CREATE TABLE results (
    run TEXT COLLATE "C" NOT NULL, number BIGINT NOT NULL, attempt BIGINT NOT NULL, seq BIGINT NOT NULL,
    PRIMARY KEY (run, number), FOREIGN KEY (run, seq) REFERENCES events(run, seq));
CREATE TRIGGER results_frozen BEFORE UPDATE OR DELETE ON results FOR EACH ROW EXECUTE FUNCTION hipwright_frozen();
"""


def upgrade() -> None:
    """Makes the tables."""
    op.execute(TABLES)


def downgrade() -> None:
    """Archives are not taken back to an older schema."""
    raise NotImplementedError("an archive is not taken back to an older schema")
