-- wrk sends ready-made requests, one after the other. The first argument names a file: each line is a method, a path
-- (or none: that of the address), a header (or none) and a body (or none), with tabs between them.

local requests = {}
local at = 0

function init(arguments)
   for line in io.lines(arguments[1]) do
      local method, path, header, body = line:match("^(.-)\t(.-)\t(.-)\t(.*)$")
      local headers = {}
      local name, value = header:match("^(.-): (.*)$")
      if name then headers[name] = value end
      if path == "" then path = wrk.path end
      if body == "" then body = nil else headers["Content-Type"] = "application/json" end
      requests[#requests + 1] = wrk.format(method, path, headers, body)
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
