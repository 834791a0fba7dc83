-- Log lines in the style of web servers, applications, job schedulers, databases and sshd, in several languages.
-- below(n, most) is a number below `most`, by the n-th hash of a row; zipf(n, most) one up to `most`, by Zipf's law.
SELECT id, timestamp_seconds(1767225600 + id * 3600 div $an_hour) AS at,
    CASE WHEN below(23, 1000000) = 7 THEN 'ERROR quorum of shard lost' ELSE CASE int(below(24, 8))
        WHEN 0 THEN concat(
            concat_ws('.', 10, below(1, 9), zipf(2, 250), below(3, 250)), ' - - "GET /items/', zipf(4, 50000),
            '?page=', zipf(5, 90), ' HTTP/1.1" ', element_at(array(200, 200, 200, 304, 404, 500), int(below(6, 6)) + 1),
            ' ', below(7, 60000), ' "Mozilla/5.0 (X11; Linux x86_64) Firefox/', zipf(8, 140), '.0"')
        WHEN 1 THEN concat(
            'INFO [worker-', below(9, 64), '] request ', hex(xxhash64(id, 10)), ' of user u', zipf(11, 200000),
            ' took ', zipf(12, 9000), ' ms')
        WHEN 2 THEN concat(
            'job nightly-', zipf(13, 900), ' started on node-', below(14, 400), ', attempt ', zipf(15, 5))
        WHEN 3 THEN concat(
            'LOG:  duration: ', zipf(16, 90000) / 1000,
            ' ms  statement: SELECT * FROM orders WHERE customer_id = ', zipf(17, 900000))
        WHEN 4 THEN concat(
            'Failed password for invalid user ', element_at(array('root', 'test', 'git'), int(below(18, 3)) + 1),
            ' from ', concat_ws('.', 10, below(1, 9), zipf(2, 250), below(3, 250)), ' port ', below(19, 65000), ' ssh2')
        WHEN 5 THEN concat(
            'WARN java.lang.IllegalStateException: full\n\tat com.example.Queue.offer(L', below(20, 400), ')')
        WHEN 6 THEN concat('Auftrag ', zipf(21, 90000), ' für Lager Köln ist abgeschlossen')
        WHEN 7 THEN concat('注文 ', zipf(22, 90000), ' を処理しました')
    END END AS message,
    array(concat('l', zipf(25, 100000)), concat('l', below(26, 100000))) AS labels
FROM range(0, $lines, 1, $files)
