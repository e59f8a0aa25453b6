// The state of the data plane that its parts share. Everything but the counters belongs to the I/O thread.
#pragma once

#include <atomic>
#include <memory>
#include <unordered_set>

#include "egress/dns/policy_dns.hpp"
#include "egress/engine.hpp"
#include "egress/identity/binary_pins.hpp"
#include "egress/io/streams.hpp"
#include "egress/io/tls.hpp"
#include "egress/websocket/admission.hpp"

namespace openshell::egress {

class Relay;

struct CoreCounters {
  std::atomic<std::uint64_t> opens_allowed{0}, opens_denied{0}, requests_allowed{0}, requests_denied{0}, bytes_up{0}, bytes_down{0};
  std::atomic<std::uint64_t> dns_queries{0}, dns_denied_table_full{0};
  std::atomic<std::size_t> live_relays{0}, dns_mappings{0}, dns_denied_mappings{0}, pinned_binaries{0};
};

struct Core {
  Core(EngineOptions given, std::shared_ptr<EventSink> sink, std::vector<dns::NameServer> servers, std::uint64_t epoch, SslContext roots)
      : options{std::move(given)},
        events{std::move(sink)},
        dns{io, std::move(servers), epoch, events},
        leaves{options.ca},
        upstream_tls{std::move(roots)} {}

  EngineOptions options;
  std::shared_ptr<asio::io_context> io = std::make_shared<asio::io_context>(1);
  std::shared_ptr<EventSink> events;
  dns::PolicyDns dns;
  BinaryPins pins;
  LeafCache leaves;
  SslContext upstream_tls;
  SessionCache upstream_sessions;
  websocket::TextAdmission texts{*io};
  std::shared_ptr<const Generation> current;
  std::unordered_set<std::shared_ptr<Relay>> relays;
  std::size_t local_calls = 0;    ///< requests to policy.local that are being answered
  std::size_t explaining = 0;     ///< of the relays: denied opens that are only answered
  asio::steady_timer sweep{*io};  ///< runs while there are relays
  bool sweeping = false;
  bool stopping = false;
  CoreCounters counters;
};

}  // namespace openshell::egress
