-- Accesses of process images to files and names, calls of one kind in one row. Calls that change names or make files have a row
-- each, for each has another name.
SELECT c.upid, c.file_id, o.name AS op, o.class,
  NULLIF(c.what >> 8 & 8589934591, 0) - 1 AS flags,
  COALESCE(c.result, 0) < 0 AS failed,
  MIN(c.start_ns) AS first_ns, MAX(c.start_ns + c.duration_ns) AS last_ns,
  COUNT(*) AS calls,
  SUM(CASE WHEN o.class IN ('read', 'write') THEN MAX(0, COALESCE(c.result, c.length, 0)) ELSE 0 END)
    AS bytes,
  MAX(CASE WHEN o.name = 'truncate' THEN c.length END) AS length
FROM call AS c JOIN operation AS o ON o.op = c.what & 63
WHERE c.upid IS NOT NULL AND c.file_id IS NOT NULL
GROUP BY c.upid, c.file_id, c.what >> 8 & 8589934591, o.op, failed,
  CASE WHEN o.class = 'namespace' OR o.name IN ('create', 'open') THEN c.start_ns END
ORDER BY first_ns
