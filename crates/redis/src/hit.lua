-- Counts one hit in the sliding window of KEYS[1], a sorted set of the times of the counted hits.
-- ARGV: the limit; the window in microseconds. Returns: allowed (1 or 0), remaining, reset in milliseconds since 1970,
-- and the time until then in milliseconds (the caller's clock may differ).
local limit, window = tonumber(ARGV[1]), tonumber(ARGV[2])
-- Redis's own clock: the servers' clocks differ. Microseconds since 1970 are exact in a double.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - window))
local used = redis.call('ZCARD', KEYS[1])
local allowed = 0

if used < limit then
  allowed = 1
  used = used + 1
  -- Strictly increasing, also within one microsecond and after the clock is set back: a sorted set holds each member
  -- once, so equal times would count as one hit.
  local last = redis.call('ZREVRANGE', KEYS[1], 0, 0)[1]
  local stamp = now
  if last and tonumber(last) >= stamp then
    stamp = tonumber(last) + 1
  end
  stamp = string.format('%.0f', stamp)
  redis.call('ZADD', KEYS[1], stamp, stamp)
  -- One more millisecond, since Redis counts the expiry from the start of the current millisecond.
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.ceil(window / 1000) + 1))
end

-- `next` is the hit whose expiry allows the next one: the oldest, unless the limit was lowered below the used count.
local over = math.max(used - limit, 0)
local next = redis.call('ZRANGE', KEYS[1], over, over)[1]
local reset = math.ceil((tonumber(next or now) + window) / 1000)
local wait = math.max(math.ceil(reset - now / 1000), 0)
return { allowed, math.max(limit - used, 0), reset, wait }
