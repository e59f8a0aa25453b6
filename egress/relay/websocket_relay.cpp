#include <deque>

#include <fmt/format.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "egress/credentials/text.hpp"
#include "egress/pipeline/request.hpp"
#include "egress/relay/relay.hpp"
#include "egress/uuid.hpp"
#include "egress/websocket/frame.hpp"
#include "policy/content/graphql.hpp"

namespace openshell::egress {
namespace {

using websocket::CloseCode;
using websocket::Piece;

constexpr std::string_view kTextMethod = "WEBSOCKET_TEXT";  // as rules name it
constexpr std::chrono::seconds kAssemblyIdle{30};           // without a byte inside a message
constexpr std::chrono::seconds kAssemblyTotal{120};         // from the first byte of a message to its last
constexpr std::chrono::seconds kForwarding{120};            // for upstream to take one piece
constexpr websocket::Fault kNoRoom{"assembly_capacity_exhausted", CloseCode::try_later};
constexpr websocket::Fault kIdle{"message_assembly_idle_timeout", CloseCode::protocol};
constexpr websocket::Fault kTooSlow{"message_assembly_total_timeout", CloseCode::protocol};
constexpr websocket::Fault kPolicyChanged{"policy_stale", CloseCode::restarted};
constexpr websocket::Fault kDenied{"policy_denied", CloseCode::policy};

/// One direction's writer. Frames of ours stand between frames of the peer's.
struct Out {
  explicit Out(asio::io_context& io, AsyncStream& to) : stream{to}, io_context{io} {}
  AsyncStream& stream;
  websocket::FrameBoundaries written;
  bool busy = false;
  bool ended = false;
  std::deque<std::shared_ptr<Gate>> waiting;
  asio::io_context& io_context;  // where waiters are woken

  Task<void> take() {
    while (busy) {
      const auto turn = std::make_shared<Gate>(io_context);
      waiting.push_back(turn);
      co_await turn->wait();
    }
    busy = true;
  }
  void give() {
    busy = false;
    if (waiting.empty()) return;
    const auto next = waiting.front();
    waiting.pop_front();
    next->open();
  }
};

/// What both directions share.
struct Session {
  Session(Relay& owner, OpenExchange request, AsyncStream& client, AsyncStream& upstream, bool inside_tls)
      : relay{owner},
        upgrade{std::move(request)},
        tls{inside_tls},
        to_client{*owner.core.io, client},
        to_upstream{*owner.core.io, upstream},
        forwarding{*owner.core.io, [&owner] { owner.close(); }},
        ending{*owner.core.io, [&owner] { owner.close(); }},
        done{*owner.core.io} {}

  Relay& relay;
  const OpenExchange upgrade;
  const bool tls;
  Out to_client, to_upstream;
  websocket::ClientFrames frames;
  Watchdog forwarding;  // while a piece is written upstream
  Watchdog ending;      // from the first end on
  bool over = false;    // nothing is carried any more
  bool holds_place = false;
  int left = 2;  // coroutines that use the streams
  Gate done;
};

using SessionPtr = std::shared_ptr<Session>;

void log_end(const Session& session, Disposition disposition, std::string_view word, const DenialId& id) {
  auto event =
      session.relay.event(EventClass::kHttp, disposition, disposition == Disposition::kDenied ? Severity::kMedium : Severity::kLow);
  event.method = kTextMethod;
  event.path = session.upgrade.path;
  event.tls = session.tls;
  event.denial_id = id;
  event.rule_type = "l7";
  event.status_detail = word;
  event.message = fmt::format("WebSocket session to {}:{} ended: {}", session.relay.host, session.relay.port.value, word);
  session.relay.core.events->emit(std::move(event));
}

/// Writes one piece; false: the other side is gone.
Task<bool> put(SessionPtr session, Out& out, std::string bytes) {
  co_await out.take();
  bool good = !session->over && !out.ended;
  if (good) {
    out.written.pass(bytes);
    const auto status = co_await out.stream.write(std::move(bytes));
    good = status.ok();
  }
  out.give();
  co_return good;
}

/// A frame of ours, where it does not fall into one of the peer's, and the end of this direction.
Task<void> end_direction(SessionPtr session, Out& out, std::string close_frame) {
  co_await out.take();
  if (!out.ended && !close_frame.empty() && out.written.between_frames()) {
    const auto status = co_await out.stream.write(std::move(close_frame));
    if (!status.ok()) session->relay.close();
  }
  if (!std::exchange(out.ended, true)) co_await out.stream.shutdown_write();
  out.give();
}

void leave(const SessionPtr& session) {
  if (--session->left == 0) session->done.open();
}

Task<void> say_end(SessionPtr session, Out& out, std::string close_frame) {
  co_await end_direction(session, out, std::move(close_frame));
  leave(session);
}

/// Ends the session from our side: both are told, and have a moment to read it.
void end(const SessionPtr& session, websocket::Fault fault, std::string_view reason, bool tell_upstream = true) {
  if (session->left == 0 || std::exchange(session->over, true)) return;
  session->ending.arm(kLinger);
  auto& io = *session->relay.core.io;
  auto down = websocket::close_for_client(fault.code, reason);
  auto up = tell_upstream ? websocket::close_for_server(fault.code, reason) : std::string{};
  session->left += 2;
  asio::co_spawn(io, say_end(session, session->to_client, std::move(down)), asio::detached);
  asio::co_spawn(io, say_end(session, session->to_upstream, std::move(up)), asio::detached);
}

void fail(const SessionPtr& session, websocket::Fault fault) {
  if (session->over) return;
  log_end(*session, Disposition::kNone, fault.word, {});
  session->relay.count(true, "l7_parse_rejection");
  end(session, fault, fault.word);
}

/// A message that may not go: the agent is told why as far as it may know.
void deny(const SessionPtr& session, std::string_view detail, std::string_view reason, bool tell_upstream) {
  if (session->over) return;
  log_end(*session, Disposition::kDenied, detail, DenialId{new_uuid()});
  ++session->relay.core.counters.requests_denied;
  session->relay.count(true, "l7_policy");
  end(session, kDenied, reason, tell_upstream);
}

/// The policy's word on one text message, under the generation of this moment. False: the session ended.
bool judge_text(const SessionPtr& session, std::string_view text, const policy::Endpoint*& endpoint) {
  Relay& relay = session->relay;
  policy::Request message{kTextMethod, session->upgrade.path, {}};
  endpoint = relay.connection.deciding_for(session->upgrade.path);
  policy::GraphqlMessage graphql;
  if (endpoint != nullptr && endpoint->graphql_messages) {
    graphql = policy::classify_graphql_message(text);
    if (graphql.control) return true;
    if (!graphql.content.error.empty()) {  // a server might read another operation in it: refused whatever the enforcement
      relay.record(message, policy::Verdict::deny);
      relay.observe(EndpointResult::kPolicyDenied, endpoint);
      deny(session, "policy_denied", fmt::format("GraphQL message rejected: {}", graphql.content.error), true);
      return false;
    }
    message.graphql = &graphql.content;
  }
  const auto decision = relay.connection.request(message);
  endpoint = decision.endpoint;
  relay.record(message, decision.verdict);
  if (!decision.forwards()) {
    relay.observe(EndpointResult::kPolicyDenied, endpoint);
    deny(session, "policy_denied", decision.reason.empty() ? "message denied by policy" : decision.reason, true);
    return false;
  }
  if (decision.verdict == policy::Verdict::audit) log_end(*session, Disposition::kAudit, "policy_denied", {});
  return true;
}

/// Secrets for placeholders, where the endpoint asks for it. False: the session ended; upstream hears nothing of why.
bool resolve_credentials(const SessionPtr& session, const policy::Endpoint* endpoint, std::string& text, bool& changed) {
  if (endpoint == nullptr || !endpoint->websocket_credential_rewrite || !has_marker(text)) return true;
  Relay& relay = session->relay;
  UsedCredentials used;
  const auto status =
      resolve_text(text, relay.generation->credentials.get(), relay.scope(session->upgrade.path), std::chrono::system_clock::now(), used);
  changed = used.any();
  if (status.ok() && changed && !may_carry_secret(relay, session->tls, endpoint)) {
    deny(session, "credential_requires_tls", "credential unavailable", false);
    return false;
  }
  if (status.ok()) return true;
  const bool elsewhere = absl::IsPermissionDenied(status);
  relay.observe(elsewhere ? EndpointResult::kPolicyDenied : EndpointResult::kCredentialUnavailable, endpoint);
  deny(session, elsewhere ? "credential_endpoint_mismatch" : "credential_unavailable",
       elsewhere ? "credential endpoint mismatch" : "credential unavailable", false);
  return false;
}

/// A whole message: judged, completed, and written as one frame. Nothing waits between the judgement and the write.
Task<bool> forward_text(SessionPtr session, Piece piece) {
  const policy::Endpoint* endpoint = nullptr;
  bool changed = false;
  if (session->over || !judge_text(session, piece.bytes, endpoint) || !resolve_credentials(session, endpoint, piece.bytes, changed))
    co_return false;
  const auto mask = piece.own_mask && !changed ? *piece.own_mask : websocket::random_mask();
  auto frame = websocket::client_frame(websocket::Opcode::text, piece.bytes, mask);
  if (changed) wipe(piece.bytes);
  session->relay.core.counters.bytes_up.fetch_add(frame.size(), std::memory_order_relaxed);
  const bool written = co_await put(session, session->to_upstream, std::move(frame));
  co_return written;
}

void give_place_back(Session& session) {
  if (std::exchange(session.holds_place, false)) session.relay.core.texts.leave();
}

/// Where a credential could pass unseen only text goes, which can be looked into.
bool may_send_binary(const Session& session) {
  const auto* endpoint = session.relay.connection.deciding_for(session.upgrade.path);
  return endpoint == nullptr || !endpoint->provider_credentialed || endpoint->allow_uninspected_credentials;
}

/// False: the direction ended.
Task<bool> carry(SessionPtr session, Piece piece) {
  bool good = true;
  switch (piece.kind) {
    case Piece::Kind::begin:
      good = co_await session->relay.core.texts.enter();
      session->holds_place = good;
      if (!good) fail(session, kNoRoom);
      break;
    case Piece::Kind::text:
      session->forwarding.arm(kForwarding);
      good = co_await forward_text(session, std::move(piece));
      session->forwarding.disarm();
      give_place_back(*session);
      break;
    case Piece::Kind::fault:
      fail(session, piece.fault);
      good = false;
      break;
    case Piece::Kind::forward:
    case Piece::Kind::close:
      if (piece.kind == Piece::Kind::forward && piece.opcode == websocket::Opcode::binary && !may_send_binary(*session)) {
        deny(session, "uninspected_credentials", "binary messages are not allowed here", true);
        co_return false;
      }
      if (piece.kind == Piece::Kind::close) session->ending.arm(kHalfClosedIdle);
      session->forwarding.arm(kForwarding);
      session->relay.core.counters.bytes_up.fetch_add(piece.bytes.size(), std::memory_order_relaxed);
      good = co_await put(session, session->to_upstream, std::move(piece.bytes));
      session->forwarding.disarm();
      break;
  }
  co_return good && !session->over;
}

/// The workload's messages on their way up.
Task<void> pump_up(SessionPtr session, Reader& from) {
  std::string nothing;
  using Clock = std::chrono::steady_clock;
  Clock::time_point begun;
  bool late = false;
  Watchdog assembly{*session->relay.core.io, [&session, &late] { fail(session, late ? kTooSlow : kIdle); }};
  while (true) {
    auto bytes = from.take();
    if (!session->over) session->frames.append(bytes);
    while (!session->over) {
      auto piece = session->frames.next();
      if (!piece) break;
      if (piece->kind == Piece::Kind::begin) begun = Clock::now();
      const bool good = co_await carry(session, std::move(*piece));
      if (!good && !session->over) session->over = true, session->relay.close();  // upstream is gone
    }
    assembly.disarm();
    if (session->over) give_place_back(*session);
    if (!session->over && session->frames.assembling()) {
      const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(begun + kAssemblyTotal - Clock::now());
      late = rest < kAssemblyIdle;
      assembly.arm(std::max(std::chrono::milliseconds{0}, std::min<std::chrono::milliseconds>(rest, kAssemblyIdle)));
    }
    const auto more = co_await from.fill();  // behind our own end too: what nobody reads would turn it into a reset
    if (!more.ok()) session->relay.close();
    if (!more.ok() || !*more) break;
  }
  assembly.disarm();
  give_place_back(*session);
  session->ending.arm(session->over ? kLinger : kHalfClosedIdle);
  co_await say_end(session, session->to_upstream, std::move(nothing));
}

/// The server's frames on their way down, as they come.
Task<void> pump_down(SessionPtr session, Reader& from) {
  std::string nothing;
  while (true) {
    auto bytes = from.take();
    if (!bytes.empty()) {
      ++session->relay.progress;
      session->relay.core.counters.bytes_down.fetch_add(bytes.size(), std::memory_order_relaxed);
      const bool written = co_await put(session, session->to_client, std::move(bytes));
      if (!written && !session->over) session->relay.close();
    }
    const auto more = co_await from.fill();
    if (!more.ok() && !session->over) session->relay.close();
    if (!more.ok() || !*more) break;
  }
  session->ending.arm(session->over ? kLinger : kHalfClosedIdle);
  co_await say_end(session, session->to_client, std::move(nothing));
}

}  // namespace

Task<void> websocket_relay(std::shared_ptr<Relay> relay, OpenExchange upgrade, AsyncStream& client, Reader& from_client,
                           AsyncStream& upstream, Reader& from_upstream, bool tls) {
  relay->exchange = upgrade;  // a policy that no longer admits it ends the session
  const auto session = std::make_shared<Session>(*relay, std::move(upgrade), client, upstream, tls);
  relay->on_stale = [weak = std::weak_ptr{session}] {
    if (const auto alive = weak.lock()) end(alive, kPolicyChanged, "policy changed");
  };
  asio::co_spawn(*relay->core.io, pump_up(session, from_client), asio::detached);
  co_await pump_down(session, from_upstream);
  co_await session->done.wait();
  relay->on_stale = nullptr;
  relay->exchange.reset();
}

}  // namespace openshell::egress
