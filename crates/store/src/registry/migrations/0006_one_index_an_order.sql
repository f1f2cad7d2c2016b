-- Ids break ties in the direction of the last key, so that one index serves an order and its reverse: these served the
-- descending orders while ids ascended in both.
DROP INDEX devices_by_description_down;
DROP INDEX devices_by_status_down;
DROP INDEX device_activity_order;
