#include "programs/supervisor/ssh/workload.hpp"

#include <utility>

#include "programs/supervisor/ssh/main_peer.hpp"

namespace openshell::supervisor {
namespace {

/// A process that the channel owns: whoever lets go of the session ends its tree.
class ProcessPeer final : public ChannelPeer {
 public:
  explicit ProcessPeer(std::shared_ptr<ProcessSession> session) : session_{std::move(session)} {}

  void read(ReadDone done) override {
    session_->read([done = std::move(done)](absl::StatusOr<ProcessOutput> output) mutable {
      if (!output.ok()) return done({PeerOutput::Kind::broken, {}, 0});
      switch (output->kind) {
        case ProcessOutput::Kind::standard_output:
          return done({PeerOutput::Kind::output, std::move(output->bytes), 0});
        case ProcessOutput::Kind::standard_error:
          return done({PeerOutput::Kind::error_output, std::move(output->bytes), 0});
        case ProcessOutput::Kind::exit:
          return done({PeerOutput::Kind::exit, {}, output->code});
      }
    });
  }
  void write(std::string bytes, WriteDone done) override { session_->write(std::move(bytes), std::move(done)); }
  void close_input() override { session_->close_input(); }
  void resize(std::uint32_t columns, std::uint32_t rows) override { session_->resize(columns, rows); }
  void signal(boundary::ProcessSignal signal) override { session_->signal(signal); }
  void close() override { session_->terminate(); }

 private:
  const std::shared_ptr<ProcessSession> session_;
};

class ConnectionPeer final : public ChannelPeer {
 public:
  explicit ConnectionPeer(std::shared_ptr<egress::ByteStream> stream) : stream_{std::move(stream)} {}

  void read(ReadDone done) override {
    stream_->read([done = std::move(done)](absl::StatusOr<std::string> bytes) mutable {
      if (!bytes.ok()) return done({PeerOutput::Kind::broken, {}, 0});
      const auto kind = bytes->empty() ? PeerOutput::Kind::end : PeerOutput::Kind::output;
      done({kind, *std::move(bytes), 0});
    });
  }
  void write(std::string bytes, WriteDone done) override { stream_->write(std::move(bytes), std::move(done)); }
  void close_input() override { stream_->shutdown_write(); }
  void resize(std::uint32_t, std::uint32_t) override {}
  void signal(boundary::ProcessSignal) override {}
  void close() override { stream_->reset(); }

 private:
  const std::shared_ptr<egress::ByteStream> stream_;
};

class Attached final : public MainFollower {
 public:
  explicit Attached(std::shared_ptr<MainAttachment> attachment) : attachment_{std::move(attachment)} {}
  void read(ReadDone done) override { attachment_->read(std::move(done)); }
  absl::Status acquire_input() override { return attachment_->acquire_input(); }
  void release_input() override { attachment_->release_input(); }
  bool owns_input() const override { return attachment_->owns_input(); }
  void write(std::string bytes, WriteDone done) override { attachment_->write(std::move(bytes), std::move(done)); }
  void resize(std::uint32_t columns, std::uint32_t rows) override { attachment_->resize(columns, rows); }
  void signal(boundary::ProcessSignal signal) override { attachment_->signal(signal); }
  void detach() override { attachment_->detach(); }

 private:
  const std::shared_ptr<MainAttachment> attachment_;
};

class BoundaryWorkload final : public SshWorkload {
 public:
  BoundaryWorkload(std::shared_ptr<BoundaryClient> boundary, std::shared_ptr<MainSession> main)
      : boundary_{std::move(boundary)}, main_{std::move(main)} {}

  void start(ProcessRequest request, Opened done) override {
    ProcessSession::open(boundary_, std::move(request),
                         [done = std::move(done)](absl::StatusOr<std::shared_ptr<ProcessSession>> session) mutable {
                           if (!session.ok()) return done(session.status());
                           done(std::make_shared<ProcessPeer>(*std::move(session)));
                         });
  }

  void connect(const std::string& host, std::uint16_t port, Opened done) override {
    boundary_->open_once(make_uuid(), boundary::LoopbackConnect{host, port}, std::nullopt,
                         [done = std::move(done)](absl::StatusOr<supervisor::Opened> result) mutable {
                           auto connected = result.ok() ? result_as<boundary::PortConnected>(result->response).status() : result.status();
                           if (!connected.ok()) return done(connected);
                           done(std::make_shared<ConnectionPeer>(std::move(result->stream)));
                         });
  }

  absl::StatusOr<std::shared_ptr<ChannelPeer>> attach_main(bool read_only, const std::string& line_end) override {
    if (!main_) return absl::FailedPreconditionError("canonical main process is not available");
    auto attachment = main_->attach();
    if (!attachment.ok()) return attachment.status();
    return MainPeer::make(std::make_unique<Attached>(*std::move(attachment)), read_only, line_end);
  }

 private:
  const std::shared_ptr<BoundaryClient> boundary_;
  const std::shared_ptr<MainSession> main_;
};

}  // namespace

std::shared_ptr<SshWorkload> make_ssh_workload(std::shared_ptr<BoundaryClient> boundary, std::shared_ptr<MainSession> main) {
  return std::make_shared<BoundaryWorkload>(std::move(boundary), std::move(main));
}

}  // namespace openshell::supervisor
