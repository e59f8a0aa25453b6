#include "programs/supervisor/ssh/channel.hpp"

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <libssh/server.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

namespace openshell::supervisor {
namespace {

constexpr std::size_t kInputPiece = 32'768;  // bytes of one write to the peer
constexpr std::size_t kQueued = 2;           // outputs that wait for the client before the peer is not asked for more
constexpr std::size_t kMaxTerm = 64;
constexpr std::size_t kEarlySignals = 8;  // kept for a process that is being started
constexpr int kNotFound = 127, kNotExecutable = 126, kFailed = 1;

std::string usable_term(const char* term) {
  const std::string_view text = term == nullptr ? "" : term;
  const bool fine = !text.empty() && text.size() <= kMaxTerm &&
                    std::all_of(text.begin(), text.end(), [](unsigned char c) { return absl::ascii_isgraph(c); });
  return fine ? std::string{text} : "xterm-256color";
}

int exit_code_of(const absl::Status& why) {
  if (absl::IsNotFound(why)) return kNotFound;
  return absl::IsPermissionDenied(why) ? kNotExecutable : kFailed;
}

std::uint32_t positive(int number) { return number < 0 ? 0 : static_cast<std::uint32_t>(number); }

}  // namespace

SshChannel::SshChannel(ssh_channel handle, Kind kind, std::shared_ptr<Inbox> inbox, std::shared_ptr<SshWorkload> workload,
                       const SshLimits& limits)
    : handle_{handle}, kind_{kind}, inbox_{std::move(inbox)}, workload_{std::move(workload)}, limits_{limits} {
  callbacks_.userdata = this;
  callbacks_.channel_data_function = on_data;
  callbacks_.channel_eof_function = on_eof;
  callbacks_.channel_close_function = on_close;
  callbacks_.channel_signal_function = on_signal;
  callbacks_.channel_pty_request_function = on_pty;
  callbacks_.channel_pty_window_change_function = on_window_change;
  ssh_callbacks_init(&callbacks_);
  ssh_set_channel_callbacks(handle_, &callbacks_);
}

SshChannel::~SshChannel() {
  abandon();
  ssh_remove_channel_callbacks(handle_, &callbacks_);
  ssh_channel_free(handle_);
}

// ---- requests

int SshChannel::on_pty(ssh_session, ssh_channel, const char* term, int columns, int rows, int, int, void* self) {
  auto& channel = *static_cast<SshChannel*>(self);
  if (!channel.may_start()) return SSH_ERROR;
  channel.terminal_.emplace();
  channel.terminal_->term = usable_term(term);
  channel.terminal_->size = usable_size(positive(columns), positive(rows));
  return SSH_OK;
}

void SshChannel::environment(const std::string& name, const std::string& value) {
  if (name == "OPENSHELL_NO_LOGIN_SHELL") login_ = value != "1";
  if (name == "OPENSHELL_MAIN_READ_ONLY") read_only_ = value == "1";
}

void SshChannel::shell() { start(std::nullopt); }

void SshChannel::exec(const std::string& command) {
  const std::string trimmed{absl::StripAsciiWhitespace(command)};
  if (trimmed.empty()) {
    started_ = true;
    return queue({PeerOutput::Kind::exit, {}, 0});
  }
  start(trimmed);
}

void SshChannel::start(std::optional<std::string> command) {
  ProcessRequest request;
  request.command = std::move(command);
  request.login = login_;
  request.terminal = terminal_;
  start(std::move(request));
}

void SshChannel::start(ProcessRequest request) {
  started_ = true;
  workload_->start(std::move(request), when_open());
}

bool SshChannel::subsystem(const std::string& name) {
  if (name == "sftp") {
    ProcessRequest request;
    request.runtime_helper = "sftp";
    start(std::move(request));
    return true;
  }
  if (name != "openshell-main") {
    spdlog::warn("unsupported subsystem requested: {}", name.substr(0, kMaxTerm));
    return false;
  }
  started_ = true;
  auto main = workload_->attach_main(read_only_, terminal_ ? "\r\n" : "\n");
  if (!main.ok()) {  // success all the same: a client hides the reason of a refusal
    say(absl::StrCat("cannot connect to the canonical main process: ", main.status().message()));
    queue({PeerOutput::Kind::exit, {}, kFailed});
    return true;
  }
  if (terminal_) (*main)->resize(terminal_->size.columns, terminal_->size.rows);
  opened(std::move(main));
  return true;
}

int SshChannel::on_window_change(ssh_session, ssh_channel, int columns, int rows, int, int, void* self) {
  auto& channel = *static_cast<SshChannel*>(self);
  if (channel.kind_ != Kind::session) return SSH_ERROR;
  if (channel.peer_) channel.peer_->resize(positive(columns), positive(rows));
  if (channel.terminal_) channel.terminal_->size = usable_size(positive(columns), positive(rows));
  channel.resized_ = !channel.peer_;
  return SSH_OK;
}

void SshChannel::connect(const std::string& host, std::uint16_t port) {
  started_ = true;
  workload_->connect(host, port, when_open());
}

/// The peer comes on any thread, maybe after the channel has gone: then it is closed at once.
SshWorkload::Opened SshChannel::when_open() {
  return [inbox = inbox_, weak = weak_from_this()](absl::StatusOr<std::shared_ptr<ChannelPeer>> peer) {
    inbox->post([weak, peer = std::move(peer)] {
      if (auto self = weak.lock()) return self->opened(peer);
      if (peer.ok()) (*peer)->close();
    });
  };
}

void SshChannel::opened(absl::StatusOr<std::shared_ptr<ChannelPeer>> peer) {
  if (!peer.ok()) {
    if (kind_ == Kind::forward) {
      spdlog::info("direct-tcpip failed: {}", std::string{peer.status().message()});
      return queue({PeerOutput::Kind::broken, {}, 0});
    }
    say(std::string{peer.status().message()});
    return queue({PeerOutput::Kind::exit, {}, exit_code_of(peer.status())});
  }
  if (over_ || closed_theirs_) return (*peer)->close();
  peer_ = *std::move(peer);
  if (resized_ && terminal_) peer_->resize(terminal_->size.columns, terminal_->size.rows);
  for (const auto signal : std::exchange(early_signals_, {})) peer_->signal(signal);
}

void SshChannel::say(const std::string& text) {
  queue({PeerOutput::Kind::error_output, absl::StrCat("openshell: ", text, terminal_ ? "\r\n" : "\n"), 0});
}

void SshChannel::queue(PeerOutput output) {
  const bool last = output.kind == PeerOutput::Kind::exit || output.kind == PeerOutput::Kind::broken;
  if (last || output.kind == PeerOutput::Kind::end) output_end_ = true;
  out_.push_back(std::move(output));
}

// ---- what libssh says

int SshChannel::on_data(ssh_session, ssh_channel, void*, std::uint32_t length, int is_stderr, void* self) {
  auto& channel = *static_cast<SshChannel*>(self);
  if (is_stderr != 0) return static_cast<int>(length);  // no meaning from a client
  channel.unread_ = length;                             // all that libssh holds
  if (channel.unread_ > channel.limits_.channel_input) channel.overrun_ = true;
  return 0;
}

void SshChannel::on_eof(ssh_session, ssh_channel, void* self) { static_cast<SshChannel*>(self)->input_end_ = true; }

void SshChannel::on_close(ssh_session, ssh_channel, void* self) {
  auto& channel = *static_cast<SshChannel*>(self);
  channel.input_end_ = channel.closed_theirs_ = true;
  channel.linger_until_ = std::chrono::steady_clock::now() + channel.limits_.linger;
}

void SshChannel::on_signal(ssh_session, ssh_channel, const char* signal, void* self) {
  static const std::map<std::string_view, boundary::ProcessSignal> known{{"HUP", boundary::ProcessSignal::hangup},
                                                                         {"INT", boundary::ProcessSignal::interrupt},
                                                                         {"KILL", boundary::ProcessSignal::kill},
                                                                         {"TERM", boundary::ProcessSignal::term}};
  auto& channel = *static_cast<SshChannel*>(self);
  const auto found = known.find(signal == nullptr ? "" : signal);
  if (found == known.end() || !channel.started_) return;
  if (channel.peer_) return channel.peer_->signal(found->second);
  if (channel.early_signals_.size() < kEarlySignals) channel.early_signals_.push_back(found->second);
}

// ---- bytes

bool SshChannel::pump(bool room) {
  if (closed_theirs_) return pump_closed();
  bool moved = take_input();
  moved = feed() || moved;
  moved = read_peer() || moved;
  return (room && write_out()) || moved;
}

/// The client has closed. A process ends with its channel; a connection first gets what was sent to it, and then has a while to end.
bool SshChannel::pump_closed() {
  if (over_) return false;
  const bool lingers = kind_ == Kind::forward && peer_ && !closed_ours_ && !output_end_ && std::chrono::steady_clock::now() < linger_until_;
  if (!lingers) {
    over_ = true;
    abandon();
    return true;
  }
  out_.clear();
  bool moved = take_input();
  moved = feed() || moved;
  return read_peer() || moved;
}

/// All at once, and only when all before it went on: libssh opens the window again with every read, however small, and would hold ever
/// more.
bool SshChannel::take_input() {
  if (closed_ours_) unread_ = 0;  // nobody takes it any more
  if (unread_ == 0 || !input_.empty() || writing_) return false;
  input_.resize(unread_);
  const int count = ssh_channel_read_nonblocking(handle_, input_.data(), static_cast<std::uint32_t>(input_.size()), 0);
  input_.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  const int left = count >= 0 ? ssh_channel_poll(handle_, 0) : 0;
  unread_ = left > 0 ? static_cast<std::size_t>(left) : 0;
  return count > 0;
}

bool SshChannel::feed() {
  if (!peer_ || writing_ || input_closed_ || closed_ours_) return false;
  if (input_.empty()) {
    if (!input_end_ || unread_ > 0) return false;
    input_closed_ = true;
    peer_->close_input();
    return true;
  }
  writing_ = true;
  std::string piece = input_.substr(0, kInputPiece);
  input_.erase(0, piece.size());
  peer_->write(std::move(piece), [inbox = inbox_, weak = weak_from_this()](const absl::Status& status) {
    inbox->post([weak, ok = status.ok()] {
      auto self = weak.lock();
      if (!self) return;
      self->writing_ = false;
      if (ok) return;
      self->input_.clear();  // the peer takes no more; what it says still comes
      self->input_closed_ = true;
    });
  });
  return true;
}

bool SshChannel::read_peer() {
  if (!peer_ || reading_ || output_end_ || out_.size() >= kQueued) return false;
  reading_ = true;
  peer_->read([inbox = inbox_, weak = weak_from_this()](PeerOutput output) {
    inbox->post([weak, held = std::make_shared<PeerOutput>(std::move(output))] {
      auto self = weak.lock();
      if (!self) return;
      self->reading_ = false;
      self->queue(std::move(*held));
    });
  });
  return true;
}

bool SshChannel::write_out() {
  if (out_.empty() || closed_ours_) {
    const bool both = kind_ == Kind::forward && eof_sent_ && input_closed_ && !writing_ && !closed_ours_;
    if (both) close_ours();
    return both;
  }
  auto& front = out_.front();
  switch (front.kind) {
    case PeerOutput::Kind::end:
      eof_sent_ = true;
      (void)ssh_channel_send_eof(handle_);
      break;
    case PeerOutput::Kind::exit:
      send_exit(front.code);
      break;
    case PeerOutput::Kind::broken:
      close_ours();
      break;
    default: {
      const std::size_t window = ssh_channel_window_size(handle_);
      const auto piece = static_cast<std::uint32_t>(std::min({front.bytes.size() - written_, window, kInputPiece}));
      if (piece == 0) return false;
      const auto* at = front.bytes.data() + written_;
      const int count =
          front.kind == PeerOutput::Kind::output ? ssh_channel_write(handle_, at, piece) : ssh_channel_write_stderr(handle_, at, piece);
      if (count <= 0) return false;
      written_ += static_cast<std::size_t>(count);
      if (written_ < front.bytes.size()) return true;
      break;
    }
  }
  written_ = 0;
  out_.pop_front();
  return true;
}

void SshChannel::send_exit(int code) {
  (void)ssh_channel_send_eof(handle_);
  (void)ssh_channel_request_send_exit_status(handle_, code);
  close_ours();
}

/// libssh answers SSH_AGAIN where the socket is full although the message is queued, and then leaves out the close: asked twice it is
/// there. A session keeps its peer until the client has closed too: an attachment of main counts as long as its client may not have seen
/// the end.
void SshChannel::close_ours() {
  closed_ours_ = true;
  if (ssh_channel_close(handle_) != SSH_OK) (void)ssh_channel_close(handle_);
  if (kind_ == Kind::forward) abandon();
  input_.clear();
}

void SshChannel::abandon() {
  if (auto peer = std::exchange(peer_, nullptr)) peer->close();
}

}  // namespace openshell::supervisor
