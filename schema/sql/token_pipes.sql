-- Pipes and FIFOs that pass tokens for places and carry no data from one process to another, as the jobserver of make does. A
-- process that has one end open has the other, too, for as long (nine tenths, for ends are found closed a little late). Programs
-- that were executed have them open, not only forks of the maker, for a pool of workers may share a queue in that way. The first
-- holder passes tokens (place_makers.sql and the channels to examine are inserted below). Or nobody but the maker has them open.
-- A side of a pipeline keeps one end only. Nobody waits for space to give a token back.
SELECT channel_id FROM (
  SELECT channel_id, is_exec,
    COALESCE(10 * (MIN(read_to, write_to) - MAX(read_from, write_from))
      >= 9 * (MAX(read_to, write_to) - MIN(read_from, write_from)), 0) AS holds_both
  FROM (
    SELECT e.channel_id, e.upid, p.origin = 'exec' AS is_exec,
      MIN(CASE WHEN e.direction <> 'write' THEN e.from_ns END) AS read_from,
      MAX(CASE WHEN e.direction <> 'write' THEN COALESCE(e.to_ns, p.end_ns, 4000000000000000000) END) AS read_to,
      MIN(CASE WHEN e.direction <> 'read' THEN e.from_ns END) AS write_from,
      MAX(CASE WHEN e.direction <> 'read' THEN COALESCE(e.to_ns, p.end_ns, 4000000000000000000) END) AS write_to
    FROM (CHANNELS) AS c JOIN channel_end AS e USING (channel_id) LEFT JOIN process AS p USING (upid)
    WHERE c.kind IN ('pipe', 'fifo')
    GROUP BY e.channel_id, e.upid))
GROUP BY channel_id HAVING MIN(holds_both) = 1
  AND (COUNT(*) = 1 OR SUM(is_exec) > 1 AND channel_id IN (PLACE_MAKERS))
  AND channel_id NOT IN (SELECT channel_id FROM sample WHERE side = 'write' AND channel_id IS NOT NULL)
