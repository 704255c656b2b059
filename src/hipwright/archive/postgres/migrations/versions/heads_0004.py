"""The last event of every run and its fastest verified programs, which a search reads instead of all; and claims."""

from alembic import op

revision = "0004"
down_revision = "0003"

TABLES = """
CREATE TABLE heads (
    run TEXT COLLATE "C" PRIMARY KEY REFERENCES runs(id), seq BIGINT NOT NULL, kept BIGINT NOT NULL DEFAULT -2)
    WITH (fillfactor = 50);
INSERT INTO heads (run, seq)
    SELECT id, (SELECT COALESCE(MAX(seq), -1) FROM events WHERE run = runs.id) FROM runs;
CREATE TABLE verified (
    place TEXT COLLATE "C" NOT NULL, program TEXT COLLATE "C" NOT NULL, kind SMALLINT NOT NULL,
    microseconds DOUBLE PRECISION NOT NULL, run TEXT COLLATE "C" NOT NULL, data TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (place, program));
CREATE INDEX verified_by_speed ON verified(place, kind, microseconds, program);
CREATE TABLE claims (
    key TEXT COLLATE "C" PRIMARY KEY, holder TEXT COLLATE "C" NOT NULL, until DOUBLE PRECISION NOT NULL);
DELETE FROM digests WHERE kind = 'verified/1';
"""


def upgrade() -> None:
    """Makes the tables."""
    op.execute(TABLES)


def downgrade() -> None:
    """Archives are not taken back to an older schema."""
    raise NotImplementedError("an archive is not taken back to an older schema")
