// A real openshell-gateway in directories of its own, ended with the test.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "observability/text.hpp"
#include "programs/gateway/local_pki.hpp"

namespace openshell::gateway {

inline std::string file_content(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

class GatewayProcess {
 public:
  GatewayProcess() {
    EXPECT_NE(::mkdtemp(base_.data()), nullptr);
    ::chmod(base_.c_str(), 0755);
    EXPECT_TRUE(generate_certs({tls(), {}, ""}).ok());
  }
  ~GatewayProcess() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    std::filesystem::remove_all(base_);
  }
  GatewayProcess(const GatewayProcess&) = delete;
  GatewayProcess& operator=(const GatewayProcess&) = delete;

  [[nodiscard]] std::string tls() const { return base_ + "/state/tls"; }
  [[nodiscard]] std::string state() const { return base_ + "/state"; }
  [[nodiscard]] std::string run() const { return base_ + "/run"; }
  [[nodiscard]] std::string log() const { return file_content(base_ + "/log"); }
  [[nodiscard]] int port() const { return port_; }
  [[nodiscard]] std::string target() const { return cat("127.0.0.1:", port_); }
  [[nodiscard]] pid_t pid() const { return pid_; }
  void config(const std::string& body) const {
    std::ofstream{base_ + "/gateway.toml", std::ios::trunc} << "[openshell]\nversion = 2\n" << body;
  }

  void launch(const std::vector<std::string>& flags) {
    std::ofstream{base_ + "/log", std::ios::trunc};
    pid_ = ::fork();
    if (pid_ == 0) exec(flags);
    ASSERT_GT(pid_, 0);
  }
  /// Starts and waits until it is ready; false: it ended.
  bool start(std::vector<std::string> flags = {}) {
    flags.insert(flags.begin(), {"--port", "0"});
    launch(flags);
    const std::string mark = "://127.0.0.1:";
    for (const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds{20}; std::chrono::steady_clock::now() < limit;) {
      const std::string text = log();
      const auto at = text.find(mark);
      if (text.find("gateway ready") != std::string::npos && text.back() == '\n' && at != std::string::npos) {
        port_ = std::atoi(text.c_str() + at + mark.size());
        return true;
      }
      if (::waitpid(pid_, &status_, WNOHANG) == pid_) {
        pid_ = -1;
        return false;
      }
      std::this_thread::yield();
      ::usleep(2000);
    }
    return false;
  }
  /// Exit code, or 128 + signal.
  int wait() {
    if (pid_ > 0) ::waitpid(pid_, &status_, 0);
    pid_ = -1;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  }
  int terminate(int signal = SIGTERM) {
    ::kill(pid_, signal);
    return wait();
  }

 private:
  [[noreturn]] void exec(const std::vector<std::string>& flags) const {
    ::setenv("OPENSHELL_STATE_DIR", state().c_str(), 1);
    ::setenv("OPENSHELL_RUN_DIR", run().c_str(), 1);
    ::setenv("HOME", base_.c_str(), 1);
    for (const char* name : {"XDG_CONFIG_HOME", "RUST_LOG", "OPENSHELL_LOG_LEVEL", "OPENSHELL_GATEWAY_CONFIG"}) ::unsetenv(name);
    if (std::filesystem::exists(base_ + "/gateway.toml")) ::setenv("OPENSHELL_GATEWAY_CONFIG", (base_ + "/gateway.toml").c_str(), 1);
    const int out = ::open((base_ + "/log").c_str(), O_WRONLY | O_APPEND);
    ::dup2(out, 1);
    ::dup2(out, 2);
    std::string program = OPENSHELL_BIN_DIR "/openshell-gateway";
    std::vector<std::string> all = flags;
    std::vector<char*> argv{program.data()};
    for (auto& flag : all) argv.push_back(flag.data());
    argv.push_back(nullptr);
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
  }

  std::string base_ = "/tmp/openshell-gw-XXXXXX";
  pid_t pid_ = -1;
  int port_ = 0;
  int status_ = 0;
};

}  // namespace openshell::gateway
