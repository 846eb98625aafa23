-- Built when the recording ends: maintained row by row they would slow the writer down.
CREATE INDEX call_file ON call (file_id);
CREATE INDEX call_process ON call (upid);
-- The end of the last call on each file.
UPDATE file SET last_ns = (
  SELECT MAX(start_ns + duration_ns) FROM call WHERE call.file_id = file.file_id);
