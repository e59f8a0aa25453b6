// A real openshell-sandbox in real namespaces, and a plain gRPC client that speaks the protocol to it.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "boundary.grpc.pb.h"
#include "isolation/boundary/control.hpp"
#include "isolation/boundary/framing.hpp"
#include "isolation/boundary/launch_material.hpp"
#include "isolation/boundary/session_token.hpp"
#include "pki/session.hpp"

namespace openshell::sandbox::test {

namespace wire = ::openshell::sandbox::protocol::v1;

inline constexpr std::uint32_t kUid = 1'900'070'001;
inline constexpr char kInstance[] = "0f8fad5b-d9cb-469f-a165-70867728950e";

std::string new_uuid();

/// Signs bearers as the gateway would.
class TokenSigner {
 public:
  TokenSigner();
  ~TokenSigner();
  [[nodiscard]] std::string public_pem() const;
  [[nodiscard]] std::string bearer(const boundary::SessionClaims& claims) const;

 private:
  void* key_;
};

/// One open call: the answer came, the stream behind it is the test's.
class ClientCall {
 public:
  ClientCall(wire::IsolationBoundary::Stub& stub, const std::string& bearer, const std::string& id, const boundary::Request& request,
             bool mediate = false);
  ~ClientCall();
  /// The response; nullopt when the call ended without one.
  std::optional<boundary::Response> response();
  bool send(const std::string& bytes);
  void send_end() { stream_->WritesDone(); }
  std::optional<std::string> receive();  ///< one chunk; nullopt at the end
  grpc::Status finish();
  void cancel() { context_.TryCancel(); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<wire::BoundaryChunk, wire::BoundaryChunk>> stream_;
  boundary::ControlFrameDecoder decoder_;
  std::string rest_;
  bool answered_ = false, finished_ = false;
};

/// One supervisor connection. Destroying it cuts the link.
class Client {
 public:
  Client(const boundary::Descriptor& descriptor, std::string bearer);
  boundary::Response ask(const boundary::Request& request, const std::string& id = new_uuid());
  std::unique_ptr<ClientCall> open(const boundary::Request& request, const std::string& id = new_uuid());
  std::unique_ptr<ClientCall> mediate();
  void renew(std::string bearer) { bearer_ = std::move(bearer); }

 private:
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<wire::IsolationBoundary::Stub> stub_;
  std::string bearer_;
};

/// What an exec gave.
struct ExecResult {
  std::string out, err;
  std::optional<boundary::ExitStatus> status;
  std::string process_id;
  std::string refused;  ///< the message of an error answer
};

class SandboxProcess : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  /// Starts the process; before it, tests may change `bootstrap`.
  void launch();
  /// launch, attach, confirm.
  void bring_up();
  /// bring_up and start_agent with the login shell.
  void start();
  std::unique_ptr<Client> connect();
  std::string bearer(std::uint64_t epoch = 1, std::int64_t life = 600);
  boundary::Attach attach_request(const std::string& instance = kInstance) const;
  boundary::StartAgent start_request() const;
  ExecResult exec(const std::string& script, const std::string& input = {}, bool close_input = true);
  ExecResult collect(ClientCall& call);
  /// Exit code of the sandbox process; nullopt when it still runs after `seconds`.
  std::optional<int> exit_code(double seconds);

  std::filesystem::path dir_;
  TokenSigner signer_;
  pki::SessionCertificates certificates_;
  boundary::Bootstrap bootstrap;
  boundary::Descriptor descriptor;
  boundary::BoundaryPolicy policy;
  std::unique_ptr<Client> client;
  pid_t unshare_ = -1;
};

/// Waits until `condition` holds, at most `seconds`.
bool eventually(double seconds, const std::function<bool()>& condition);

}  // namespace openshell::sandbox::test
