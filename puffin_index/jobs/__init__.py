"""The jobs that write and delete: build, compact, verify, expire, drop; and the engines that run jobs."""
