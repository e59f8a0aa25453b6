#include "programs/supervisor/ssh/connection.hpp"

#include <libssh/server.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "egress/loopback_target.hpp"
#include "programs/supervisor/ssh/packet_size.hpp"

namespace openshell::supervisor {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kPacketOverhead = 64;  // length, padding and MAC of one packet, at most
constexpr int kHandled = 0, kDefaultReply = 1;

const char* text(const char* from) { return from == nullptr ? "" : from; }

}  // namespace

SshConnection::SshConnection(ssh_session session, isolation::FileDescriptor socket, std::shared_ptr<SshWorkload> workload,
                             const SshLimits& limits)
    : session_{session}, socket_{std::move(socket)}, workload_{std::move(workload)}, limits_{limits} {
  callbacks_.userdata = this;
  callbacks_.auth_none_function = on_none;
  callbacks_.auth_pubkey_function = on_key;
  ssh_callbacks_init(&callbacks_);
  ssh_set_server_callbacks(session_, &callbacks_);
  ssh_set_message_callback(session_, on_message, this);
  ssh_set_auth_methods(session_, SSH_AUTH_METHOD_NONE | SSH_AUTH_METHOD_PUBLICKEY);
  ssh_set_counters(session_, &socket_bytes_, &packets_);
  ssh_set_blocking(session_, 0);
}

SshConnection::~SshConnection() {
  over_ = true;
  // Freeing a channel flushes, and libssh then handles what has come meanwhile: nobody may find a channel that is being destroyed.
  auto channels = std::exchange(channels_, {});
  for (auto& [handle, channel] : channels) channel->abandon();
  channels.clear();
  for (auto& work : inbox_->take()) work();  // a peer that came too late is closed
  inbox_->close();
  if (event_ != nullptr) {
    ssh_event_remove_session(event_, session_);
    ssh_event_remove_fd(event_, inbox_->fd());
    ssh_event_free(event_);
  }
  ssh_disconnect(session_);
  ssh_free(session_);
}

void SshConnection::cut() {
  cut_ = true;
  ::shutdown(socket_.get(), SHUT_RDWR);
}

bool SshConnection::stuck(Clock::time_point now) const {
  const auto began = turn_began_.load();
  return began != 0 && !cut_ && now - Clock::time_point{Clock::duration{began}} > limits_.stuck;
}

void SshConnection::run() {
  if (ssh_handle_key_exchange(session_) == SSH_ERROR) return (void)end("the handshake cannot begin");
  event_ = ssh_event_new();
  if (event_ == nullptr || ssh_event_add_session(event_, session_) != SSH_OK ||
      ssh_event_add_fd(event_, inbox_->fd(), POLLIN, on_inbox, this) != SSH_OK)
    return (void)end("out of memory");
  while (!over_ && !cut_ && turn()) {
  }
}

bool SshConnection::end(const std::string& why) {
  over_ = true;
  spdlog::info("SSH connection ended: {}", why);
  return false;
}

int SshConnection::on_inbox(int, int, void* self) {
  auto& connection = *static_cast<SshConnection*>(self);
  for (auto& work : connection.inbox_->take()) work();
  connection.moved_ = true;
  return 0;
}

/// One turn: wait, let libssh handle what came, move bytes. False: it is over.
bool SshConnection::turn() {
  const auto wait = moved_ ? milliseconds{0} : patience(Clock::now());
  moved_ = false;
  // The poll itself is waiting, and what libssh does with what came is short, but for a client that makes it loop: so the time is taken
  // from when there is something to do.
  pollfd ready[2] = {{socket_.get(), POLLIN, 0}, {inbox_->fd(), POLLIN, 0}};
  if ((ssh_get_status(session_) & SSH_WRITE_PENDING) != 0) ready[0].events |= POLLOUT;
  if (wait.count() > 0) (void)::poll(ready, 2, static_cast<int>(wait.count()));
  turn_began_ = Clock::now().time_since_epoch().count();
  const int polled = ssh_event_dopoll(event_, 0);
  const bool gone = polled == SSH_ERROR || (ssh_get_status(session_) & (SSH_CLOSED | SSH_CLOSED_ERROR)) != 0;
  if (!gone && !over_) pump();
  turn_began_ = 0;
  if (over_) return false;
  if (gone) return end("the client is gone");
  if ((ssh_get_status(session_) & (SSH_CLOSED | SSH_CLOSED_ERROR)) != 0) return end("the client is gone");
  const auto now = Clock::now();
  if (!authenticated_ && now - began_ > limits_.handshake) return end("no complete handshake in time");
  if (!check_bounds()) return false;
  keep_alive(now);
  return !over_;
}

milliseconds SshConnection::patience(Clock::time_point now) const {
  auto due = authenticated_ ? std::min(heard_ + limits_.dead, std::max(heard_, asked_) + limits_.keepalive) : began_ + limits_.handshake;
  return std::clamp(std::chrono::duration_cast<milliseconds>(due - now) + milliseconds{1}, milliseconds{1}, milliseconds{60'000});
}

void SshConnection::pump() {
  auto each = channels_.find(first_);
  if (each == channels_.end()) each = channels_.begin();
  for (std::size_t left = channels_.size(); left > 0; --left) {
    const bool room = drained();
    moved_ = each->second->pump(room) || moved_;
    ++each;
    if (each == channels_.end()) each = channels_.begin();
  }
  std::vector<std::shared_ptr<SshChannel>> ended;  // destroyed after they are out of the map: see the destructor
  for (auto at = channels_.begin(); at != channels_.end();) {
    if (at->second->over()) ended.push_back(std::move(at->second));
    at = at->second ? std::next(at) : channels_.erase(at);
  }
  const auto next = channels_.upper_bound(first_);
  first_ = next == channels_.end() ? nullptr : next->first;
}

/// Whether the socket has taken everything; if so, what is unread is counted anew from here.
bool SshConnection::drained() {
  if ((ssh_get_status(session_) & SSH_WRITE_PENDING) != 0) return false;
  drained_bytes_ = packets_.out_bytes;
  drained_packets_ = packets_.out_packets;
  return true;
}

/// Whether the client keeps to its windows and reads what it asks for.
bool SshConnection::check_bounds() {
  std::size_t held = 0;
  for (const auto& [handle, channel] : channels_) {
    if (channel->overrun()) return end("a client sends more than its window");
    held += channel->held();
  }
  if (held > limits_.connection_input) return end("too many bytes wait for the sandbox");
  if (drained()) return true;
  const auto unread = packets_.out_bytes - drained_bytes_ + kPacketOverhead * (packets_.out_packets - drained_packets_);
  if (unread > limits_.unread_output) return end("the client does not read");
  return true;
}

void SshConnection::keep_alive(Clock::time_point now) {
  if (socket_bytes_.in_bytes != heard_bytes_) {
    heard_bytes_ = socket_bytes_.in_bytes;
    heard_ = now;
  }
  if (!authenticated_) return;
  if (now - heard_ > limits_.dead) return (void)end("nothing was heard from the client in time");
  if (now - std::max(heard_, asked_) < limits_.keepalive) return;
  asked_ = now;
  // The first call may only take note of the answer to an earlier question; then the second asks.
  ssh_send_keepalive(session_);
  ssh_send_keepalive(session_);
}

// ---- authentication

int SshConnection::on_none(ssh_session, const char*, void* self) {
  static_cast<SshConnection*>(self)->authenticated_ = true;
  return SSH_AUTH_SUCCESS;
}

int SshConnection::on_key(ssh_session, const char*, ssh_key_struct*, char state, void* self) {
  auto& connection = *static_cast<SshConnection*>(self);
  if (state == SSH_PUBLICKEY_STATE_NONE) return SSH_AUTH_SUCCESS;  // would be taken, if it is signed with
  if (state != SSH_PUBLICKEY_STATE_VALID) return connection.refuse_auth();
  connection.authenticated_ = true;
  return SSH_AUTH_SUCCESS;
}

/// After a pause, in which only this connection waits.
int SshConnection::refuse_auth() {
  turn_began_ = 0;
  pollfd gone{socket_.get(), POLLRDHUP, 0};
  (void)::poll(&gone, 1, static_cast<int>(limits_.auth_delay.count()));
  turn_began_ = Clock::now().time_since_epoch().count();
  if (++refusals_ >= limits_.auth_attempts) end("too many authentication attempts");
  return SSH_AUTH_DENIED;
}

// ---- messages

int SshConnection::on_message(ssh_session, ssh_message message, void* self) {
  auto& connection = *static_cast<SshConnection*>(self);
  if (connection.over_) return kDefaultReply;
  switch (ssh_message_type(message)) {
    case SSH_REQUEST_SERVICE:
      if (std::string_view{text(ssh_message_service_service(message))} != "ssh-userauth") return kDefaultReply;
      ssh_message_service_reply_success(message);
      return kHandled;
    case SSH_REQUEST_AUTH:  // a method that is not offered
      connection.refuse_auth();
      return kDefaultReply;
    case SSH_REQUEST_CHANNEL_OPEN:
      return connection.channel_open(message);
    case SSH_REQUEST_CHANNEL:
      return connection.channel_request(message);
    default:  // remote forwards and what else there is: refused
      return kDefaultReply;
  }
}

std::size_t SshConnection::count(SshChannel::Kind kind) const {
  return static_cast<std::size_t>(
      std::count_if(channels_.begin(), channels_.end(), [kind](const auto& entry) { return entry.second->kind() == kind; }));
}

int SshConnection::channel_open(ssh_message message) {
  if (!authenticated_) return kDefaultReply;
  switch (ssh_message_subtype(message)) {
    case SSH_CHANNEL_SESSION:
      return open_session(message);
    case SSH_CHANNEL_DIRECT_TCPIP:
      return open_forward(message);
    default:
      return kDefaultReply;
  }
}

/// Confirms the open. Null: the connection is over.
std::shared_ptr<SshChannel> SshConnection::accept(ssh_message message, SshChannel::Kind kind) {
  ssh_channel handle = ssh_message_channel_request_open_reply_accept(message);
  if (handle == nullptr) return nullptr;
  auto channel = std::make_shared<SshChannel>(handle, kind, inbox_, workload_, limits_);
  channels_.emplace(handle, channel);
  if (const auto size = client_packet_size(handle); size && *size < kLeastPacket) {
    end("a client takes packets of " + std::to_string(*size) + " bytes");
    return nullptr;
  }
  return channel;
}

int SshConnection::open_session(ssh_message message) {
  if (count(SshChannel::Kind::session) >= limits_.sessions) return kDefaultReply;
  (void)accept(message, SshChannel::Kind::session);
  return kHandled;
}

int SshConnection::open_forward(ssh_message message) {
  const std::string host = text(ssh_message_channel_request_open_destination(message));
  const int port = ssh_message_channel_request_open_destination_port(message);
  auto target = egress::loopback_target(host, static_cast<std::uint32_t>(port));
  if (!target.ok()) {
    const bool bad_port = port <= 0 || port > 65'535;
    spdlog::warn("direct-tcpip rejected: {}", bad_port ? "port " + std::to_string(port) : "non-loopback destination");
    return kDefaultReply;
  }
  if (count(SshChannel::Kind::forward) >= limits_.forwards) return kDefaultReply;
  if (auto channel = accept(message, SshChannel::Kind::forward)) channel->connect(*target, static_cast<std::uint16_t>(port));
  return kHandled;
}

std::shared_ptr<SshChannel> SshConnection::channel_of(ssh_message message) const {
  const auto found = channels_.find(ssh_message_channel_request_channel(message));
  return found == channels_.end() ? nullptr : found->second;
}

int SshConnection::channel_request(ssh_message message) {
  const auto channel = channel_of(message);
  if (!channel || channel->kind() != SshChannel::Kind::session) return kDefaultReply;
  const auto success = [message] {
    ssh_message_channel_request_reply_success(message);
    return kHandled;
  };
  switch (ssh_message_subtype(message)) {
    case SSH_CHANNEL_REQUEST_ENV:
      channel->environment(text(ssh_message_channel_request_env_name(message)), text(ssh_message_channel_request_env_value(message)));
      return success();
    case SSH_CHANNEL_REQUEST_SHELL:
      if (!channel->may_start()) return kDefaultReply;
      success();
      channel->shell();
      return kHandled;
    case SSH_CHANNEL_REQUEST_EXEC: {
      const std::string command = text(ssh_message_channel_request_command(message));
      if (!channel->may_start() || command.size() > limits_.command_bytes) return kDefaultReply;
      success();
      channel->exec(command);
      return kHandled;
    }
    case SSH_CHANNEL_REQUEST_SUBSYSTEM: {
      const std::string name = text(ssh_message_channel_request_subsystem(message));
      return channel->may_start() && channel->subsystem(name) ? success() : kDefaultReply;
    }
    default:
      return kDefaultReply;
  }
}

}  // namespace openshell::supervisor
