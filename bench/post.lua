-- wrk posts ready-made requests, one device after the other. The first argument names a file: each line is
-- the headers of one device (or none), a tab, and its body.

local requests = {}
local at = 0

function init(arguments)
   local path = wrk.path
   for line in io.lines(arguments[1]) do
      local token, body = line:match("^(.-)\t(.*)$")
      local headers = { ["Content-Type"] = "application/json" }
      if token ~= "" then headers["cloud"] = token end
      requests[#requests + 1] = wrk.format("POST", path, headers, body)
   end
end

function request()
   at = at % #requests + 1
   return requests[at]
end

function done(summary, latency, _)
   local errors = summary.errors
   io.write(string.format(
      "figures requests=%d micros=%d p50=%d p99=%d max=%d errors=%d\n",
      summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), latency.max,
      errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
