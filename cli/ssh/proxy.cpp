// `openshell ssh-proxy`: the ProxyCommand of ssh. Bytes of stdin and stdout over one ForwardTcp call to the SSH server of a sandbox.
#include <absl/strings/str_cat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <thread>

#include "cli/commands/commands.hpp"
#include "cli/endpoint.hpp"
#include "cli/ssh/byte_forward.hpp"
#include "cli/ssh/known_host.hpp"
#include "cli/ssh/session.hpp"
#include "cli/ssh/ssh_program.hpp"
#include "cli/terminal.hpp"
#include "cli/write_all.hpp"
#include "openshell.pb.h"

namespace openshell::cli {
namespace {

struct Options {
  std::string url, sandbox, token, server, gateway_name, name;
};

/// scheme://host:port; a path is ignored.
std::string origin_of(const std::string& url) { return split_endpoint(url).origin(); }

void send_stdin(const std::shared_ptr<ByteForward>& forward) {
  std::string buffer(ByteForward::kChunk, '\0');
  while (true) {
    const auto count = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return forward->end_output();
    if (!forward->write(buffer.substr(0, static_cast<std::size_t>(count)))) return;
  }
}

absl::Status pump(const std::shared_ptr<ByteForward>& forward) {
  std::thread{[forward] { send_stdin(forward); }}.detach();
  bool ended = false;
  while (true) {
    auto bytes = forward->read();
    if (!bytes.ok()) return bytes.status();
    if (!*bytes) return absl::OkStatus();
    if (ended) return absl::InternalError("the gateway sent bytes after the end of the target's output");
    if ((*bytes)->empty()) {
      ended = true;
      ::close(STDOUT_FILENO);
    } else if (!write_all(STDOUT_FILENO, **bytes).ok()) {
      return absl::OkStatus();  // ssh is gone
    }
  }
}

absl::StatusOr<Target> proxy_target(Context& context, const Options& options, const std::string& url) {
  Target target;
  target.endpoint = origin_of(url);
  target.name = options.gateway_name;
  target.insecure = context.flags().insecure;
  auto registry = context.registry();
  if (!registry.ok()) return registry.status();
  if (target.name.empty()) {  // an equal endpoint lends its name
    for (const auto& known : registry->list()) {
      if (origin_of(known.endpoint) == target.endpoint) target.name = known.name;
    }
  }
  if (auto known = registry->find(target.name); known.ok() && origin_of(known->endpoint) == target.endpoint)
    target.auth_mode = known->auth_mode;
  if (target.endpoint.starts_with("https://") && !target.insecure) target.bundle = registry->bundle(target.name);
  return target;
}

/// `context` knows how the gateway of `target` is spoken to: it lends the bearer, for the registered origin alone.
absl::StatusOr<int> run(Context& context, Target target, const std::string& workspace, const std::string& sandbox,
                        const std::string& token) {
  auto bearer = context.bearer(target);
  if (!bearer.ok()) return bearer.status();
  target.bearer = *std::move(bearer);
  auto client = GatewayClient::open(target);
  if (!client.ok()) return client.status();
  v1::TcpForwardInit init;
  init.set_sandbox(sandbox);
  init.set_workspace(workspace);
  init.set_service_id(absl::StrCat("ssh-proxy:", sandbox));
  init.mutable_ssh();
  init.set_authorization_token(token);
  const std::shared_ptr<ByteForward> forward = client->open_forward(init);
  const auto status = pump(forward);
  if (!status.ok()) print_error(status);
  // The thread that reads stdin may wait for ever; the process ends without it.
  std::fflush(nullptr);
  std::_Exit(status.ok() ? 0 : 1);
}

/// Makes a session of its own: for tools that know only a Host block.
absl::StatusOr<int> run_named(Context& context, const Options& options) {
  GlobalFlags flags = context.flags();
  flags.gateway = options.gateway_name;
  flags.endpoint = options.server;
  Context own{flags};
  auto session = create_session(own, options.name);
  if (!session.ok()) return session.status();
  auto target = own.target();
  if (!target.ok()) return target.status();
  if (origin_of(session->url) != origin_of(target->endpoint)) target->auth_mode.clear();  // no bearer for another origin
  target->endpoint = session->url;
  return run(own, *std::move(target), flags.workspace, options.name, std::string{session->token.reveal()});
}

absl::StatusOr<int> proxy(Context& context, const Options& options) {
  std::string token = options.token;
  if (const char* inherited = std::getenv(kTokenVariable); token.empty() && inherited != nullptr) token = inherited;
  if (!options.url.empty() && !options.sandbox.empty() && !token.empty()) {
    auto target = proxy_target(context, options, options.url);
    if (!target.ok()) return target.status();
    return run(context, *std::move(target), context.flags().workspace, options.sandbox, token);
  }
  if (!options.name.empty() && (!options.gateway_name.empty() || !options.server.empty())) return run_named(context, options);
  return absl::InvalidArgumentError("provide either --gateway/--sandbox/--token or --gateway-name/--name (or --server/--name)");
}

}  // namespace

void add_ssh_proxy(CLI::App& root, Action& chosen) {
  auto o = std::make_shared<Options>();
  auto* command = root.add_subcommand("ssh-proxy", "ProxyCommand of ssh: stdin and stdout to the SSH server of a sandbox");
  command->add_option("-g,--gateway", o->url, "URL of the gateway");
  command->add_option("--sandbox", o->sandbox, "Sandbox of the token");
  command->add_option("--token", o->token, "Session token; better in OPENSHELL_SSH_TOKEN, which no process list shows");
  command->add_option("--server", o->server, "Endpoint instead of the registered one (deprecated)");
  command->add_option("--gateway-name", o->gateway_name, "Registered gateway, for its certificates");
  command->add_option("--name", o->name, "Sandbox; a session is made for it");
  command->callback([&chosen, o] { chosen = [o](Context& c) { return proxy(c, *o); }; });

  struct KnownHost {
    std::string fingerprint, host, type, key;
  };
  auto k = std::make_shared<KnownHost>();
  auto* known = root.add_subcommand("ssh-known-host", "KnownHostsCommand of ssh: vouches for one host key")->group("");
  known->add_option("--fingerprint", k->fingerprint)->required();
  known->add_option("host", k->host)->required();
  known->add_option("type", k->type)->required();
  known->add_option("key", k->key)->required();
  known->callback([&chosen, k] {
    chosen = [k](Context&) -> absl::StatusOr<int> {
      if (const auto line = known_host_line(k->fingerprint, k->host, k->type, k->key); !line.empty()) print(line);
      return 0;
    };
  });
}

}  // namespace openshell::cli
