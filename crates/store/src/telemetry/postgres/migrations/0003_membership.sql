-- Which of the platform's databases this is: written when it joins them, at the first start. `identity` is its own,
-- `platform` that of the platform's first database.
CREATE TABLE telemetry.membership (
    identity UUID PRIMARY KEY DEFAULT gen_random_uuid(),
    platform UUID,
    number SMALLINT
);
INSERT INTO telemetry.membership DEFAULT VALUES;
