-- The activities of threads, for the profiler: the view samples without the search for files, and with one row for each channel
-- of a wait for several.
SELECT s.sample_id, s.t_ns, s.end_ns, s.upid, s.tid, s.activity, s.samples, s.waker_upid,
  COALESCE(p.side, s.side) AS side,
  COALESCE(p.channel_id, s.channel_id, CASE s.activity WHEN 2 THEN
    (SELECT c.channel_id FROM channel AS c WHERE c.inode = COALESCE(p.object, s.object) LIMIT 1) END)
    AS channel_id,
  s.object
FROM sample AS s LEFT JOIN polled AS p USING (sample_id)
ORDER BY s.upid, s.t_ns, s.sample_id
