-- What each process image did to each file, with the moments of reading and of writing told
-- apart: file_access for the profiler, which orders versions of files by them.
SELECT c.upid, c.file_id,
  SUM(o.class = 'open') AS opens,
  SUM(o.name IN ('create', 'mknod', 'mkdir', 'symlink')) AS creates,
  SUM(o.class = 'read') AS reads,
  SUM(CASE WHEN o.class = 'read' THEN COALESCE(c.result, c.length, 0) ELSE 0 END)
    AS read_bytes,
  SUM(o.name IN ('write', 'copy_to')) AS writes,
  SUM(CASE WHEN o.name IN ('write', 'copy_to')
      THEN COALESCE(c.result, c.length, 0) ELSE 0 END) AS write_bytes,
  SUM(o.class = 'write') AS changes,
  SUM((o.name = 'truncate' AND COALESCE(c.length, 0) = 0)
      OR (o.class = 'open' AND c.what > 255 AND (c.what >> 8) - 1 & 512 > 0)) AS truncates,
  SUM(o.class = 'open' AND (c.what >> 8) - 1 & 3 IN (0, 2)) AS read_opens,
  SUM(o.class = 'open' AND (c.what >> 8) - 1 & 3 IN (1, 2)) AS write_opens,
  MIN(CASE WHEN o.class = 'read' THEN c.start_ns END) AS first_read_ns,
  MAX(CASE WHEN o.class = 'read' THEN c.start_ns + c.duration_ns END) AS last_read_ns,
  MIN(CASE WHEN o.class = 'write' OR o.name IN ('create', 'mknod') THEN c.start_ns END)
    AS first_write_ns,
  MAX(CASE WHEN o.class = 'write' OR o.name IN ('create', 'mknod')
      THEN c.start_ns + c.duration_ns END) AS last_write_ns,
  MIN(CASE WHEN o.class = 'open' THEN c.start_ns END) AS first_open_ns,
  MIN(c.start_ns) AS first_ns,
  MAX(c.start_ns + c.duration_ns) AS last_ns,
  COUNT(*) AS calls
FROM call AS c JOIN operation AS o ON o.op = c.what & 63
WHERE c.upid IS NOT NULL AND c.file_id IS NOT NULL AND COALESCE(c.result, 0) >= 0
GROUP BY c.upid, c.file_id
ORDER BY c.upid, c.file_id
