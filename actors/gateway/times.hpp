// Wall clock times of records: milliseconds since the epoch inside, google.protobuf.Timestamp in messages. 0 means "not set" on both sides.
#pragma once

#include <google/protobuf/timestamp.pb.h>

#include <cstdint>

namespace openshell::gateway {

using Millis = std::int64_t;

inline Millis to_millis(const google::protobuf::Timestamp& time) { return time.seconds() * 1000 + time.nanos() / 1'000'000; }

inline void set_millis(google::protobuf::Timestamp* time, Millis at) {
  time->set_seconds(at / 1000);
  time->set_nanos(static_cast<std::int32_t>(at % 1000) * 1'000'000);
}

}  // namespace openshell::gateway
