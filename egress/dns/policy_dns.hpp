// Policy DNS: the only resolver a workload has. It answers from the policy first and asks the world only for names that a rule names.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "egress/dns/mapping_table.hpp"
#include "egress/dns/message.hpp"
#include "egress/dns/resolver.hpp"
#include "egress/events.hpp"
#include "egress/generation.hpp"
#include "egress/io/streams.hpp"

namespace openshell::egress::dns {

/// I/O thread.
class PolicyDns {
 public:
  static constexpr std::size_t kMaxLookups = 64;    ///< questions to the world at once
  static constexpr std::size_t kMaxWaiting = 1024;  ///< further ones; beyond: SERVFAIL

  PolicyDns(std::shared_ptr<asio::io_context> io, std::vector<NameServer> servers, std::uint64_t epoch, std::shared_ptr<EventSink> events);

  /// One bare message to its answer. `current` is asked again after a lookup, so that an answer never belongs to an older policy.
  Task<std::string> answer(std::string message, std::function<std::shared_ptr<const Generation>()> current);
  /// The addresses of a name that the policy has allowed, from the same servers; publishes nothing.
  Task<Resolved> resolve(std::string name);
  /// Re-judges the mappings under a new generation.
  void publish(const Generation& generation);
  [[nodiscard]] Lookup find(const IpAddress& address) const { return table_.find(address, Clock::now()); }
  /// A connect was decided by this mapping, which lives on for as long as it is used. Where its TTL is over its name is asked again in the
  /// background, so that the next connect gets fresh addresses.
  void note_use(const IpAddress& address, std::function<std::shared_ptr<const Generation>()> current);
  [[nodiscard]] const MappingTable& table() const noexcept { return table_; }
  [[nodiscard]] std::uint64_t queries() const noexcept { return queries_; }
  [[nodiscard]] std::uint64_t questions_to_the_world() const noexcept { return resolver_.questions(); }

 private:
  Task<std::string> answer_eligible(const Query& query, std::shared_ptr<const Generation> generation,
                                    const std::function<std::shared_ptr<const Generation>()>& current);
  std::string answer_alias(const Query& query, const Generation& generation);
  std::string answer_ineligible(const Query& query, bool host_name, const Generation& generation);
  std::string publish_answer(const Query& query, const Generation& generation, const std::vector<IpAddress>& addresses,
                             std::chrono::seconds ttl);
  std::string fail(const Query& query, const Generation& generation, Rcode rcode, std::string_view detail);
  Task<void> refresh(std::string name, std::function<std::shared_ptr<const Generation>()> current);
  Task<bool> enter();
  void leave();

  std::shared_ptr<asio::io_context> io_;
  Resolver resolver_;
  MappingTable table_;
  std::shared_ptr<EventSink> events_;
  std::size_t lookups_ = 0;
  std::deque<std::shared_ptr<Gate>> waiting_;
  std::uint64_t queries_ = 0;
  std::set<std::string, std::less<>> refreshing_;
  std::map<std::string, Clock::time_point, std::less<>> reported_;  // names whose ineligibility was said lately
};

/// What the endpoints of a name grant, and what identifies it over generations. `addresses` are filtered for each endpoint and port.
std::vector<Contract> make_contracts(const Generation& generation, std::string_view name, const std::vector<IpAddress>& addresses);
std::string allocation_identity(const Generation& generation, std::string_view name);

}  // namespace openshell::egress::dns
