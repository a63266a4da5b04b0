"""Files of other load generators, written after their documentation: k6, oha, Fortio, wrk and
HdrHistogram.
"""

from __future__ import annotations

import json
from typing import Any

from hdrh.histogram import HdrHistogram

TREND = {"avg": 5.0, "min": 1.0, "med": 4.0, "max": 40.0, "p(90)": 9.0, "p(95)": 12.0, "p(99)": 20.0}
FAST = {"avg": 4.5, "min": 1.0, "med": 4.0, "max": 30.0, "p(90)": 8.0, "p(95)": 11.0, "p(99)": 19.0}


def k6_export(**changes: object) -> dict[str, Any]:
    metrics = {
        "http_reqs": {"count": 1000, "rate": 100.0},
        "http_req_failed": {"passes": 10, "fails": 990, "value": 0.01},
        "http_req_duration": TREND,
        "http_req_duration{expected_response:true}": FAST,
        "vus_max": {"value": 20, "min": 20, "max": 20},
        "temperature": {"value": -3, "min": -5, "max": 1},
    }
    return {"metrics": metrics | changes, "root_group": {"name": ""}}


def k6_handled() -> dict[str, Any]:
    metrics = {
        name: {"type": "trend", "contains": "time", "values": values} for name, values in k6_export()["metrics"].items()
    }
    return {"metrics": metrics, "state": {"testRunDurationMs": 10_000.0}, "options": {}}


def k6_readable() -> dict[str, Any]:
    values: dict[str, Any] = {**k6_export()["metrics"], "http_reqs": {"count": 1000}}
    values["http_req_failed"] = {"matches": 10, "rate": 0.01, "total": 1000}
    metrics = [{"name": name, "type": "any", "contains": "time", "values": each} for name, each in values.items()]
    return {
        "version": "1.0.0",
        "config": {"duration": 10.0, "execution": "local", "script": "x.js"},
        "metadata": {"k6Version": "2.0.0", "generatedAt": "2026-01-01T00:00:00Z"},
        "results": {"checks": {"metrics": [], "results": []}, "metrics": metrics},
    }


def k6_lines() -> str:
    """A hundred requests of 10 ms and one a tenth of a second long that fails, from 12:00:00 on."""
    lines: list[dict[str, Any]] = [{"type": "Metric", "metric": "http_req_duration", "data": {"type": "trend"}}]
    for number in range(100):
        time = f"2026-01-01T12:00:{(number + 1) / 50:09.6f}789Z"
        tags = {"expected_response": "true", "status": "200"}
        data = {"time": time, "value": 10.0 + number / 10, "tags": tags}
        lines.append({"type": "Point", "metric": "http_req_duration", "data": data})
    failed = {"time": "2026-01-01T14:00:01.5+02:00", "value": 100.0, "tags": {"expected_response": "false"}}
    lines.append({"type": "Point", "metric": "http_req_duration", "data": failed})
    lines.append({"type": "Point", "metric": "vus_max", "data": {"time": failed["time"], "value": 5, "tags": None}})
    return "".join(json.dumps(line) + "\n" for line in lines)


def oha(**changes: object) -> dict[str, Any]:
    percentiles = {"p10": 0.001, "p25": 0.001, "p50": 0.002, "p75": 0.003, "p90": 0.004, "p95": 0.005, "p99": 0.009}
    summary = {"successRate": 1.0, "total": 2.0, "slowest": 0.02, "fastest": 0.0005, "average": 0.0022}
    document = {
        "summary": {**summary, "requestsPerSec": 505.0, "totalData": 100, "sizePerRequest": 1, "sizePerSec": 50.0},
        "latencyPercentiles": {**percentiles, "p99.9": 0.015, "p99.99": 0.019},
        "statusCodeDistribution": {"200": 990, "500": 10},
        "errorDistribution": {"connection refused": 5, "aborted due to deadline": 5},
    }
    return document | changes


def fortio(**changes: object) -> dict[str, Any]:
    percentiles = [{"Percentile": 50, "Value": 0.002}, {"Percentile": 99, "Value": 0.01}]
    histogram = {"Count": 800, "Min": 0.001, "Max": 0.02, "Sum": 1.8, "Avg": 0.00225, "StdDev": 0.001}
    document = {
        "RunType": "HTTP",
        "StartTime": "2026-01-01T12:00:00.123456789Z",
        "RequestedQPS": "400",
        "RequestedDuration": "2s",
        "ActualQPS": 399.9,
        "ActualDuration": 2_000_000_000,
        "NumThreads": 8,
        "Version": "1.60.3",
        "DurationHistogram": {**histogram, "Data": None, "Percentiles": percentiles},
        "ErrorsDurationHistogram": {"Count": 8, "Min": 0, "Max": 0, "Sum": 0, "Avg": 0, "StdDev": 0, "Data": None},
        "RetCodes": {"200": 792, "-1": 8},
        "URL": "http://ann:secret@127.0.0.1:8000/a?token=1",
    }
    return document | changes


WRK = """Running 1m test @ http://127.0.0.1:8000
  2 threads and 20 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   330.00us    1.15ms   1.05s    78.17%
    Req/Sec   300.70      9.00   323.00     78.17%
  Latency Distribution
     50%  331.00us
     75%  336.00us
     90%    3.40ms
     99%    1.02s
  36000 requests in 1.00m, 3.68GB read
  Socket errors: connect 1, read 2, write 3, timeout 4
Requests/sec:    600.00
Transfer/sec:     62.82MB
"""


HGRM = """       Value     Percentile TotalCount 1/(1-Percentile)

       1.000 0.000000000000         10           1.00
       2.000 0.500000000000        500           2.00
       5.000 0.900000000000        900          10.00
       9.000 0.990625000000        995         106.67
      20.000 1.000000000000       1000
#[Mean    =        2.500, StdDeviation   =        1.500]
#[Max     =       20.000, Total count    =         1000]
#[Buckets =           20, SubBuckets     =         2048]
"""


def hlog(tags: tuple[str, ...] = ("",)) -> str:
    """Two intervals of a second a tag, with 100 values each of 1 to 100 ms, in nanoseconds."""
    lines = ["#[Histogram log format version 1.2]", "#[StartTime: 1767268800.000 (seconds since epoch), Thu]"]
    lines.append('"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"')
    for tag in tags:
        for number in range(2):
            histogram = HdrHistogram(1, 3_600_000_000_000, 3)
            for value in range(1, 101):
                histogram.record_value(value * 1_000_000)
            lines.append(f"{f'Tag={tag},' if tag else ''}{number}.000,1.000,100.000,{histogram.encode().decode()}")
    return "\n".join(lines) + "\n"


WRK2 = """Running 30s test @ http://127.0.0.1:8000/index.html
  2 threads and 100 connections
  Thread calibration: mean lat.: 1.100ms, rate sampling interval: 10ms
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.20ms  500.00us  10.00ms   90.00%
    Req/Sec     1.05k   100.00     1.30k    80.00%
  Latency Distribution (HdrHistogram - Recorded Latency)
 50.000%    1.10ms
 75.000%    1.40ms
 90.000%    1.80ms
 99.000%    3.00ms
 99.900%    8.00ms
 99.990%    9.90ms
 99.999%   10.00ms
100.000%   10.00ms

  Detailed Percentile spectrum:
       Value   Percentile   TotalCount 1/(1-Percentile)

       0.100     0.000000            1         1.00
      10.000     1.000000        39000          inf
#[Mean    =        1.201, StdDeviation   =        0.501]
#[Max     =       10.000, Total count    =        39000]
#[Buckets =           27, SubBuckets     =         2048]
----------------------------------------------------------
  60000 requests in 30.00s, 19.81MB read
  Non-2xx or 3xx responses: 600
Requests/sec:   2000.00
Transfer/sec:    676.18KB
"""
