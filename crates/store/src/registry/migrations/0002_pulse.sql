-- Written to see whether the registry keeps what is written.
CREATE TABLE pulse (
    beats BIGINT NOT NULL
);
INSERT INTO pulse (beats) VALUES (0);
