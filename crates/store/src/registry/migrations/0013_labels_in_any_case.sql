-- Devices are found by a label whatever the case of its value. What is in lower case is found by the label itself: this holds
-- the rest alone, and all that is read of it, or SQLite would rather read all values of the label. The function knows the
-- letters A to Z on both dialects.
CREATE INDEX device_labels_folded ON device_labels (label, lower(value), value, device_key) WHERE value <> lower(value);
