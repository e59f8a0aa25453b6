// What the data plane tells the rest of the supervisor: denials, log events, endpoint observations, counts.
#pragma once

#include <absl/functional/any_invocable.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "messages/values.hpp"

namespace openshell::egress {

using WallTime = std::chrono::system_clock::time_point;

/// A denied open that a person could allow, on its way to the aggregator and to a proposal.
struct DenialEvent {
  DenialId id;
  WallTime at;
  std::string host;  ///< lower case; name or literal address
  Port port;
  std::string binary;  ///< real path; "-" where not known
  std::vector<std::string> ancestors;
  std::string reason;
  std::string stage;  ///< "transparent_tcp_connect" or "ssrf"
};

enum class Severity : std::uint8_t { kInformational, kLow, kMedium, kHigh };
enum class EventClass : std::uint8_t { kNetwork, kHttp, kDns, kConfig, kFinding, kBase };
enum class Disposition : std::uint8_t { kNone, kAllowed, kDenied, kAudit };

/// One line of the log and one OCSF event. Holds no query, no body, no credential and no placeholder.
struct ActivityEvent {
  EventClass event_class = EventClass::kNetwork;
  Disposition disposition = Disposition::kNone;
  Severity severity = Severity::kInformational;
  WallTime at;
  DenialId denial_id;  ///< set on every denied event; the event's uid
  std::string message;
  std::string host;
  Port port;
  std::string method;  ///< HTTP events only
  std::string path;    ///< redacted, without query; HTTP events only
  bool tls = false;    ///< spoken inside TLS that was ended here; HTTP events only
  std::uint16_t status = 0;
  std::string binary;
  std::vector<std::string> ancestors;
  std::int64_t pid = 0;
  std::string policy;         ///< matched rule key
  std::string rule_type;      ///< "opa", "ssrf", "tls", "credentials", "l7", "http-parser", "credential-binding", "request-authority"
  std::string status_detail;  ///< stable machine word
  std::uint64_t generation = 0;
  std::map<std::string, std::string> fields;  ///< unmapped extras
};

/// Counted per group only; the group is one of a fixed list of words.
struct ActivityCount {
  bool denied = false;
  std::string group;
};

enum class EndpointResult : std::uint8_t {
  kHttpResponseReceived,
  kPolicyDenied,
  kCredentialUnavailable,
  kTlsFailed,
  kTransportFailed,
  kUpstreamRejected
};

/// How one exchange with a configured endpoint ended.
struct EndpointObservation {
  std::string policy;              ///< rule key of the deciding endpoint
  std::size_t endpoint_index = 0;  ///< its index inside the rule
  std::string host;
  Port port;
  EndpointResult result = EndpointResult::kTransportFailed;
  std::uint64_t generation = 0;
};

using Event = std::variant<DenialEvent, ActivityEvent, ActivityCount, EndpointObservation>;

/// Takes events from the egress threads. Implementations are thread-safe, return at once and never throw.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void emit(Event event) noexcept = 0;
};

/// The bridge to whoever drains: a bounded queue per kind (the oldest is dropped and counted) with a wake-up.
class EventQueue final : public EventSink {
 public:
  struct Limits {
    std::size_t denials = 1024;     ///< events
    std::size_t activities = 4096;  ///< events
    std::size_t counts = 1024;      ///< events
    std::size_t observations = 64;  ///< events; a full queue drops the new one
  };
  struct Dropped {
    std::uint64_t denials = 0, activities = 0, counts = 0, observations = 0;
  };
  struct Batch {
    std::vector<DenialEvent> denials;
    std::vector<ActivityEvent> activities;
    std::vector<ActivityCount> counts;
    std::vector<EndpointObservation> observations;
  };

  /// `wake` is called on an egress thread when the queue turns from empty to not empty; it must only post a message.
  EventQueue(Limits limits, absl::AnyInvocable<void()> wake);
  void emit(Event event) noexcept override;
  /// Everything that waits, in order of arrival per kind.
  [[nodiscard]] Batch drain();
  [[nodiscard]] Dropped dropped() const;

 private:
  mutable std::mutex mutex_;
  Limits limits_;
  absl::AnyInvocable<void()> wake_;
  bool woken_ = false;
  std::deque<DenialEvent> denials_;
  std::deque<ActivityEvent> activities_;
  std::deque<ActivityCount> counts_;
  std::deque<EndpointObservation> observations_;
  Dropped dropped_;
};

}  // namespace openshell::egress
