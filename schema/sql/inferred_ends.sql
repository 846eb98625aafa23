-- Ends of channels that follow from other evidence than open descriptors. First the ends of pipes and FIFOs at which a thread was
-- seen to wait, without those by which tokens for places may be passed (place_makers.sql and token_pipes.sql are inserted below,
-- for these channels alone). An end that was taken for unused because its program had both ends open may have been used; an end
-- without other evidence, as a fork has those of its parent, gets a row.
CREATE TEMP TABLE waited_at AS
SELECT channel_id, upid, side, MIN(t_ns) AS from_ns
FROM sample JOIN channel USING (channel_id)
WHERE kind IN ('pipe', 'fifo') AND side IS NOT NULL
GROUP BY channel_id, upid, side;

UPDATE channel_end SET used = NULL
WHERE used = 0 AND bytes IS NULL AND (channel_id, upid, direction) IN (SELECT channel_id, upid, side FROM waited_at)
  AND channel_id NOT IN (TOKEN_PIPES);

INSERT INTO channel_end (channel_id, upid, direction, from_ns, at_most_bytes)
SELECT s.channel_id, s.upid, s.side, s.from_ns, CASE s.side WHEN 'read' THEN p.read_bytes ELSE p.write_bytes END
FROM waited_at AS s JOIN process AS p USING (upid)
WHERE s.channel_id NOT IN (PLACE_MAKERS)
  AND NOT EXISTS (SELECT 1 FROM channel_end AS e WHERE e.channel_id = s.channel_id AND e.upid = s.upid);

DROP TABLE waited_at;

-- A process that moved data, call by call, had an end open, even if nobody saw how it got that end.
INSERT INTO channel_end (channel_id, upid, direction, from_ns, bytes, used, at_most_bytes)
SELECT s.channel_id, s.upid, CASE WHEN c.kind IN ('pipe', 'fifo') THEN s.side ELSE 'both' END AS direction, MIN(s.first_ns),
  CASE WHEN MIN(s.exact) AND COUNT(*) = COUNT(s.bytes) THEN SUM(s.bytes) END, 1,
  CASE WHEN MIN(s.exact) AND COUNT(*) = COUNT(s.bytes) THEN SUM(s.bytes) END
FROM channel_sum AS s JOIN channel AS c USING (channel_id)
WHERE s.bytes IS NOT 0
  AND NOT EXISTS (SELECT 1 FROM channel_end AS e
    WHERE e.channel_id = s.channel_id AND e.upid = s.upid AND e.direction IN (s.side, 'both'))
GROUP BY s.channel_id, s.upid, direction;

-- A process whose traffic is known completely has used no other ends.
UPDATE channel_end AS e SET (used, bytes, at_most_bytes) = (0, 0, 0)
WHERE used IS NOT 1 AND bytes IS NULL AND upid IN (SELECT upid FROM channels_counted)
  AND NOT EXISTS (SELECT 1 FROM channel_sum AS s
    WHERE s.channel_id = e.channel_id AND s.upid = e.upid AND s.bytes IS NOT 0 AND e.direction IN (s.side, 'both'));
