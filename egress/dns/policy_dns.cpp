#include "egress/dns/policy_dns.hpp"

#include <openssl/sha.h>

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "egress/destination/address_rules.hpp"
#include "egress/dns/names.hpp"
#include "policy/matcher.hpp"

namespace openshell::egress::dns {
namespace {

constexpr std::chrono::seconds kReservedTtl{30};
constexpr std::chrono::seconds kReportEvery{10};  // an ineligible name is logged once in this time
constexpr std::size_t kMaxReported = 1024;        // names whose last report is remembered

std::string_view failure_detail(Resolved::Outcome outcome) {
  switch (outcome) {
    case Resolved::Outcome::kTimeout:
      return "policy_dns_upstream_timeout";
    case Resolved::Outcome::kMalformed:
      return "policy_dns_upstream_malformed_response";
    case Resolved::Outcome::kErrorResponse:
      return "policy_dns_upstream_error_response";
    case Resolved::Outcome::kCnameLimit:
      return "policy_dns_upstream_cname_limit";
    case Resolved::Outcome::kNoSuchName:
      return "policy_dns_upstream_nxdomain";
    case Resolved::Outcome::kNoData:
      return "policy_dns_upstream_no_data";
    default:
      return "policy_dns_upstream_io_failed";
  }
}

bool eligible(const Generation& generation, std::string_view name) { return !name.empty() && generation.matcher->knows_host(name); }

}  // namespace

std::string allocation_identity(const Generation& generation, std::string_view name) {
  std::vector<std::string> records;
  for (const auto* endpoint : generation.matcher->endpoints_for(name)) {
    std::string ports;
    for (const auto port : endpoint->ports) ports += fmt::format("{},", port);
    std::string blocks;
    for (const auto& block : endpoint->allowed_ips) {
      blocks.append(reinterpret_cast<const char*>(block.network.data()), block.network.size());
      blocks.push_back(static_cast<char>(block.prefix));
    }
    std::string record{endpoint->policy};
    record.push_back('\0');
    record += std::to_string(endpoint->index);
    record.push_back('\0');
    record += fmt::format("{}|{}|{}|{}|{}|{}|{}", endpoint->host, ports, static_cast<int>(endpoint->protocol),
                          static_cast<int>(endpoint->tls), endpoint->advisor_proposed, endpoint->exact_host, blocks);
    records.push_back(std::move(record));
  }
  std::sort(records.begin(), records.end());
  std::string all;
  for (const auto& record : records) {
    all += record;
    all.push_back('\xff');
  }
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(all.data()), all.size(), reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

std::vector<Contract> make_contracts(const Generation& generation, std::string_view name, const std::vector<IpAddress>& addresses) {
  std::vector<Contract> out;
  for (const auto* endpoint : generation.matcher->endpoints_for(name)) {
    // A name can be declared by another rule than the one that decides: the open checks that with the binary at hand. Here each endpoint
    // speaks for itself.
    const auto plan = plan_destination(name, endpoint, endpoint->exact_host && !endpoint->advisor_proposed, generation.host_gateway_ip);
    if (!plan) continue;
    for (const auto port : endpoint->ports) {
      auto pinned = filter_addresses(*plan, name, Port{port}, addresses);
      out.push_back({std::string{endpoint->policy}, endpoint->index, Port{port}, std::move(pinned)});
    }
  }
  std::sort(out.begin(), out.end(), [](const Contract& a, const Contract& b) {
    return std::tie(a.policy, a.endpoint_index, a.port) < std::tie(b.policy, b.endpoint_index, b.port);
  });
  return out;
}

PolicyDns::PolicyDns(std::shared_ptr<asio::io_context> io, std::vector<NameServer> servers, std::uint64_t epoch,
                     std::shared_ptr<EventSink> events)
    : io_{std::move(io)}, resolver_{io_, std::move(servers)}, table_{epoch}, events_{std::move(events)} {}

Task<bool> PolicyDns::enter() {
  if (lookups_ < kMaxLookups) {
    ++lookups_;
    co_return true;
  }
  if (waiting_.size() >= kMaxWaiting) co_return false;
  const auto gate = std::make_shared<Gate>(*io_);
  waiting_.push_back(gate);
  co_await gate->wait();  // the one who leaves hands its place over
  co_return true;
}

void PolicyDns::leave() {
  if (waiting_.empty()) {
    --lookups_;
    return;
  }
  waiting_.front()->open();
  waiting_.pop_front();
}

std::string PolicyDns::fail(const Query& query, const Generation& generation, Rcode rcode, std::string_view detail) {
  ActivityEvent event;
  event.event_class = EventClass::kDns;
  event.severity = Severity::kLow;
  event.at = std::chrono::system_clock::now();
  event.host = query.name;
  event.port = Port{53};
  event.status_detail = detail;
  event.generation = generation.number;
  event.message = fmt::format("DNS lookup of {} failed", query.name);
  events_->emit(std::move(event));
  return build_answer(query, rcode);
}

Task<std::string> PolicyDns::answer(std::string message, std::function<std::shared_ptr<const Generation>()> current) {
  ++queries_;
  auto parsed = parse_query(message);
  if (!parsed.query) co_return build_error(parsed.error, parsed.question);
  const Query& query = *parsed.query;
  if (query.name.empty()) co_return build_answer(query, Rcode::kNxDomain);
  const auto kind = classify_name(query.name);
  if (kind == NameKind::kPolicyLocal || kind == NameKind::kProxyLocal) {
    if (query.type != kTypeA) co_return build_answer(query, Rcode::kNoError);
    co_return build_answer(query, Rcode::kNoError,
                           kind == NameKind::kPolicyLocal ? MappingTable::policy_local() : MappingTable::proxy_local(),
                           static_cast<std::uint32_t>(kReservedTtl.count()));
  }
  const auto generation = current();
  if (!generation || !generation->matcher) co_return build_answer(query, Rcode::kServFail);  // a denial must not be cached
  if (kind == NameKind::kNever || !eligible(*generation, query.name)) {
    co_return answer_ineligible(query, kind != NameKind::kNever && is_public_host_name(query.name), *generation);
  }
  if (query.type != kTypeA) co_return build_answer(query, Rcode::kNoError);  // IPv6 egress is off: no AAAA, and no lookup for it
  if (kind == NameKind::kHostAlias) co_return answer_alias(query, *generation);
  co_return co_await answer_eligible(query, generation, current);
}

std::string PolicyDns::answer_ineligible(const Query& query, bool host_name, const Generation& generation) {
  if (!host_name) return build_answer(query, Rcode::kNxDomain);
  const auto now = Clock::now();
  if (const auto said = reported_.find(query.name); said == reported_.end() || said->second + kReportEvery <= now) {
    if (reported_.size() >= kMaxReported) reported_.clear();
    reported_[query.name] = now;
    ActivityEvent event;
    event.event_class = EventClass::kDns;
    event.severity = Severity::kMedium;
    event.at = std::chrono::system_clock::now();
    event.host = query.name;
    event.port = Port{53};
    event.status_detail = "policy_dns_ineligible";
    event.fields["stage"] = "dns";
    event.generation = generation.number;
    event.message = fmt::format("DNS name {} is not named by any policy", query.name);
    events_->emit(std::move(event));
  }
  if (query.type != kTypeA) return build_answer(query, Rcode::kNoError);
  const auto address = table_.deny(query.name, now);
  if (!address) return build_answer(query, Rcode::kNxDomain);
  return build_answer(query, Rcode::kNoError, address, static_cast<std::uint32_t>(MappingTable::kDeniedTtl.count()));
}

std::string PolicyDns::answer_alias(const Query& query, const Generation& generation) {
  if (!generation.host_gateway_ip || is_metadata_address(*generation.host_gateway_ip)) {
    return fail(query, generation, Rcode::kNxDomain, "policy_dns_trusted_gateway_unavailable");
  }
  return publish_answer(query, generation, {*generation.host_gateway_ip}, kReservedTtl);
}

Task<std::string> PolicyDns::answer_eligible(const Query& query, std::shared_ptr<const Generation> generation,
                                             const std::function<std::shared_ptr<const Generation>()>& current) {
  const bool entered = co_await enter();
  if (!entered) co_return fail(query, *generation, Rcode::kServFail, "policy_dns_upstream_timeout");
  auto resolved = co_await resolver_.resolve(query.name, query.type);
  leave();
  switch (resolved.outcome) {
    case Resolved::Outcome::kAddresses:
      break;
    case Resolved::Outcome::kNoSuchName:
      co_return fail(query, *generation, Rcode::kNxDomain, failure_detail(resolved.outcome));
    case Resolved::Outcome::kNoData:
      co_return fail(query, *generation, Rcode::kNoError, failure_detail(resolved.outcome));
    default:
      co_return fail(query, *generation, Rcode::kServFail, failure_detail(resolved.outcome));
  }
  // The policy may have changed while the world was asked.
  const auto now = current();
  if (!now || !now->matcher || !eligible(*now, query.name)) {
    co_return fail(query, *generation, Rcode::kServFail, "policy_dns_publication_stale_generation");
  }
  co_return publish_answer(query, *now, resolved.addresses, resolved.ttl);
}

std::string PolicyDns::publish_answer(const Query& query, const Generation& generation, const std::vector<IpAddress>& addresses,
                                      std::chrono::seconds ttl) {
  auto contracts = make_contracts(generation, query.name, addresses);
  const bool any = std::any_of(contracts.begin(), contracts.end(), [](const Contract& contract) { return !contract.pinned.empty(); });
  if (!any) return fail(query, generation, Rcode::kServFail, "policy_dns_no_valid_address");
  const auto mapping =
      table_.publish(query.name, allocation_identity(generation, query.name), std::move(contracts), ttl, generation.number, Clock::now());
  if (!mapping.ok()) return fail(query, generation, Rcode::kServFail, "policy_dns_publication_pool_exhausted");
  const auto shown = std::clamp(ttl, MappingTable::kMinTtl, MappingTable::kMaxTtl);

  ActivityEvent event;
  event.event_class = EventClass::kConfig;
  event.at = std::chrono::system_clock::now();
  event.host = query.name;
  event.status_detail = "published";
  event.generation = generation.number;
  event.message = fmt::format("DNS mapping published for {}", query.name);
  event.fields["normalized_domain"] = query.name;
  event.fields["synthetic_ip"] = (*mapping)->synthetic.str();
  event.fields["mapping_id"] = (*mapping)->mapping_id;
  events_->emit(std::move(event));
  if (table_.take_high_water()) {
    ActivityEvent high;
    high.event_class = EventClass::kConfig;
    high.severity = Severity::kMedium;
    high.at = std::chrono::system_clock::now();
    high.status_detail = "high_water";
    high.message = "80 percent of the synthetic DNS addresses of this boot are used";
    events_->emit(std::move(high));
  }
  return build_answer(query, Rcode::kNoError, (*mapping)->synthetic, static_cast<std::uint32_t>(shown.count()));
}

void PolicyDns::note_use(const IpAddress& address, std::function<std::shared_ptr<const Generation>()> current) {
  if (!table_.note_use(address, Clock::now())) return;
  const auto found = find(address);
  const auto* mapping = std::get_if<const Mapping*>(&found);
  if (mapping == nullptr || classify_name((*mapping)->name) == NameKind::kHostAlias || refreshing_.size() >= kMaxLookups) return;
  const auto [name, fresh] = refreshing_.insert((*mapping)->name);
  if (fresh) asio::co_spawn(*io_, refresh(*name, std::move(current)), asio::detached);
}

Task<Resolved> PolicyDns::resolve(std::string name) {
  Resolved out;
  const bool entered = co_await enter();
  if (!entered) co_return out;
  out = co_await resolver_.resolve(std::move(name), kTypeA);
  leave();
  co_return out;
}

Task<void> PolicyDns::refresh(std::string name, std::function<std::shared_ptr<const Generation>()> current) {
  const bool entered = co_await enter();
  if (entered) {
    const auto resolved = co_await resolver_.resolve(name, kTypeA);
    leave();
    const auto generation = current();
    // A failure changes nothing: the addresses of before are used until the grace is over.
    if (resolved.outcome == Resolved::Outcome::kAddresses && generation && generation->matcher && eligible(*generation, name)) {
      auto contracts = make_contracts(*generation, name, resolved.addresses);
      const bool any = std::any_of(contracts.begin(), contracts.end(), [](const Contract& contract) { return !contract.pinned.empty(); });
      if (any) {
        table_.publish(name, allocation_identity(*generation, name), std::move(contracts), resolved.ttl, generation->number, Clock::now())
            .status()
            .IgnoreError();
      }
    }
  }
  refreshing_.erase(name);
}

void PolicyDns::publish(const Generation& generation) {
  table_.rejudge(generation.number, [&](const Mapping& mapping, std::string_view identity) -> std::optional<std::vector<Contract>> {
    if (!generation.matcher || !eligible(generation, mapping.name) || allocation_identity(generation, mapping.name) != identity)
      return std::nullopt;
    std::vector<IpAddress> pinned;
    for (const auto& contract : mapping.contracts) pinned.insert(pinned.end(), contract.pinned.begin(), contract.pinned.end());
    auto contracts = make_contracts(generation, mapping.name, pinned);
    const bool any = std::any_of(contracts.begin(), contracts.end(), [](const Contract& contract) { return !contract.pinned.empty(); });
    if (!any) return std::nullopt;
    return contracts;
  });
}

}  // namespace openshell::egress::dns
