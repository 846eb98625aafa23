-- Channels whose first holder is a program that may pass tokens for places through them: make and programs that speak its
-- protocol, and shells, whose scripts do so by FIFOs. Not Python: workers that it spawns have both ends of their queues, too. The
-- channels to examine are inserted below.
SELECT channel_id FROM (
  SELECT channel_id, '/' || exe AS exe, MIN(from_ns)
  FROM (CHANNELS) JOIN channel_end USING (channel_id) JOIN process USING (upid) GROUP BY channel_id)
WHERE exe IS NULL OR exe GLOB '*/*make' OR exe GLOB '*/cargo' OR exe GLOB '*/ninja' OR exe GLOB '*/samu' OR exe GLOB '*/sh'
  OR exe GLOB '*/[abdrz]*sh' OR exe GLOB '*/ksh*' OR exe GLOB '*/mksh' OR exe GLOB '*/yash' OR exe GLOB '*/busybox'
