-- The successful calls of known processes, in the order of time, for playing them again.
SELECT c.start_ns, c.duration_ns, c.upid, o.name AS op, c.file_id, c.offset, c.length,
  COALESCE(c.result, c.length, 0) AS result, NULLIF(c.what >> 8 & 8589934591, 0) - 1 AS flags,
  k.name AS kind
FROM call AS c JOIN operation AS o ON o.op = c.what & 63 JOIN fidelity AS f ON f.fidelity = ((c.what >> 6 & 3) | (c.what >> 46 & 4))
  JOIN file AS x ON x.file_id = c.file_id JOIN file_kind AS k ON k.kind = x.kind
WHERE c.upid IS NOT NULL AND c.file_id IS NOT NULL AND COALESCE(c.result, 0) >= 0
  AND f.name IN ('exact', 'cached', 'lossy')
ORDER BY c.start_ns
