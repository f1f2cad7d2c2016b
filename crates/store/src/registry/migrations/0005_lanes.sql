-- What leaves the house stands in lanes, each for one customer and one host: whoever carries it out goes from lane to lane,
-- and a lane in which nothing moves holds up no other.
DROP INDEX deliveries_due;
ALTER TABLE deliveries RENAME COLUMN host TO lane;
CREATE INDEX deliveries_due ON deliveries (kind, due_at, id);
CREATE INDEX deliveries_lanes ON deliveries (kind, lane, due_at, id);
