// A client of the SSH server for tests: libssh's own client side over the server's Unix socket, blocking.
#pragma once

#include <gtest/gtest.h>
#include <libssh/libssh.h>

#include <functional>
#include <optional>
#include <string>

#include "programs/supervisor/ssh/server.hpp"

namespace openshell::supervisor::test {

class SshClient {
 public:
  explicit SshClient(const std::string& socket) : session_{ssh_new()} {
    auto fd = dial_ssh_socket(socket);
    if (!fd.ok()) return;
    fd_ = fd->release();
    const int strict = 0;
    const long seconds = 10;
    const bool no_config = false;
    ssh_options_set(session_, SSH_OPTIONS_HOST, "sandbox");
    ssh_options_set(session_, SSH_OPTIONS_USER, "anybody");
    ssh_options_set(session_, SSH_OPTIONS_STRICTHOSTKEYCHECK, &strict);
    ssh_options_set(session_, SSH_OPTIONS_TIMEOUT, &seconds);
    ssh_options_set(session_, SSH_OPTIONS_PROCESS_CONFIG, &no_config);
    ssh_options_set(session_, SSH_OPTIONS_FD, &fd_);
    connected_ = ssh_connect(session_) == SSH_OK;
  }
  ~SshClient() {
    ssh_disconnect(session_);
    ssh_free(session_);
  }
  SshClient(const SshClient&) = delete;
  SshClient& operator=(const SshClient&) = delete;

  [[nodiscard]] bool connected() const { return connected_; }
  [[nodiscard]] ssh_session handle() const { return session_; }
  [[nodiscard]] int fd() const { return fd_; }
  bool login() { return connected_ && ssh_userauth_none(session_, nullptr) == SSH_AUTH_SUCCESS; }

  [[nodiscard]] std::string fingerprint() const {
    ssh_key key = nullptr;
    unsigned char* hash = nullptr;
    std::size_t size = 0;
    if (ssh_get_server_publickey(session_, &key) != SSH_OK) return {};
    ssh_get_publickey_hash(key, SSH_PUBLICKEY_HASH_SHA256, &hash, &size);
    char* text = ssh_get_fingerprint_hash(SSH_PUBLICKEY_HASH_SHA256, hash, size);
    std::string out{text};
    ssh_string_free_char(text);
    ssh_clean_pubkey_hash(&hash);
    ssh_key_free(key);
    return out;
  }

 private:
  ssh_session session_;
  int fd_ = -1;
  bool connected_ = false;
};

/// A session channel; open() says whether the server took it.
class SshSessionChannel {
 public:
  explicit SshSessionChannel(SshClient& client) : handle_{ssh_channel_new(client.handle())} {}
  ~SshSessionChannel() { ssh_channel_free(handle_); }
  SshSessionChannel(const SshSessionChannel&) = delete;
  SshSessionChannel& operator=(const SshSessionChannel&) = delete;

  bool open() { return ssh_channel_open_session(handle_) == SSH_OK; }
  [[nodiscard]] ssh_channel handle() const { return handle_; }
  bool exec(const std::string& command) { return ssh_channel_request_exec(handle_, command.c_str()) == SSH_OK; }
  /// Everything until the end.
  std::string read_all(bool errors = false) {
    std::string out;
    char buffer[32'768];
    for (int count = 0; (count = ssh_channel_read(handle_, buffer, sizeof buffer, errors ? 1 : 0)) > 0;)
      out.append(buffer, static_cast<std::size_t>(count));
    return out;
  }
  bool write(const std::string& bytes) {
    return ssh_channel_write(handle_, bytes.data(), static_cast<std::uint32_t>(bytes.size())) == static_cast<int>(bytes.size());
  }
  int exit_status() {
    while (ssh_channel_get_exit_status(handle_) < 0 && ssh_channel_poll_timeout(handle_, 1'000, 0) != SSH_ERROR &&
           ssh_channel_is_closed(handle_) == 0) {
    }
    return ssh_channel_get_exit_status(handle_);
  }

 private:
  ssh_channel handle_;
};

}  // namespace openshell::supervisor::test
