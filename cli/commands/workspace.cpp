// workspace create, get, list, delete; workspace member add, remove, list.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <map>
#include <memory>

#include "cli/commands/commands.hpp"
#include "cli/commands/delete_each.hpp"
#include "cli/key_value.hpp"
#include "cli/terminal.hpp"
#include "openshell.pb.h"

namespace openshell::cli {
namespace {

namespace json = boost::json;

std::map<std::string, std::string> sorted(const google::protobuf::Map<std::string, std::string>& map) { return {map.begin(), map.end()}; }

std::string show_labels(const datamodel::v1::Workspace& workspace) {
  return absl::StrJoin(sorted(workspace.metadata().labels()), ", ", absl::PairFormatter("="));
}

const char* show_phase(const datamodel::v1::Workspace& workspace) {
  return workspace.status().phase() == datamodel::v1::WORKSPACE_PHASE_TERMINATING ? "Terminating" : "Active";
}

json::object workspace_document(const datamodel::v1::Workspace& workspace) {
  const auto& metadata = workspace.metadata();
  json::object out{{"name", metadata.name()},
                   {"id", metadata.id()},
                   {"resource_version", metadata.resource_version()},
                   {"status", show_phase(workspace)}};
  if (metadata.has_created_time()) out["created_at"] = show_time(metadata.created_time());
  json::object labels;
  for (const auto& [key, value] : sorted(metadata.labels())) labels[key] = value;
  if (!labels.empty()) out["labels"] = labels;
  return out;
}

absl::StatusOr<int> create(Context& context, const std::string& name, const std::vector<std::string>& labels) {
  v1::CreateWorkspaceRequest request;
  request.set_name(name);
  for (const auto& label : labels) {
    auto pair = key_value(label);
    if (!pair) return absl::InvalidArgumentError(absl::StrCat("--label expects KEY=VALUE, got '", label, "'"));
    (*request.mutable_labels())[pair->first] = std::move(pair->second);
  }
  auto client = context.client();
  if (!client.ok()) return client.status();
  if (auto made = (*client)->create_workspace(request); !made.ok()) return made.status();
  print("Created workspace " + name);
  return 0;
}

absl::StatusOr<int> get(Context& context, const std::string& name, Format format) {
  auto client = context.client();
  if (!client.ok()) return client.status();
  v1::GetWorkspaceRequest request;
  request.set_name(name);
  auto answer = (*client)->get_workspace(request);
  if (!answer.ok()) return answer.status();
  const auto& workspace = answer->workspace();
  if (format != Format::table) {
    print_document(workspace_document(workspace), format);
    return 0;
  }
  print("Name: " + workspace.metadata().name());
  print("Id: " + workspace.metadata().id());
  print(absl::StrCat("Resource version: ", workspace.metadata().resource_version()));
  print("Created: " + show_time(workspace.metadata().created_time()));
  print(absl::StrCat("Status: ", show_phase(workspace)));
  print("Labels: " + show_labels(workspace));
  return 0;
}

struct ListOptions {
  int page_size = 100;
  std::string page_token, selector;
  Format format = Format::table;
};

absl::StatusOr<int> list(Context& context, const ListOptions& options) {
  auto client = context.client();
  if (!client.ok()) return client.status();
  v1::ListWorkspacesRequest request;
  request.set_page_size(options.page_size);
  request.set_page_token(options.page_token);
  request.set_label_selector(options.selector);
  auto answer = (*client)->list_workspaces(request);
  if (!answer.ok()) return answer.status();
  if (options.format != Format::table) {
    json::array items;
    for (const auto& workspace : answer->workspaces()) items.push_back(workspace_document(workspace));
    print_document(json::object{{"workspaces", items}, {"next_page_token", answer->next_page_token()}}, options.format);
    return 0;
  }
  if (answer->workspaces().empty()) {
    print("No workspaces found.");
  } else {
    std::vector<std::vector<std::string>> rows{{"NAME", "STATUS", "CREATED", "LABELS"}};
    for (const auto& workspace : answer->workspaces())
      rows.push_back(
          {workspace.metadata().name(), show_phase(workspace), show_time(workspace.metadata().created_time()), show_labels(workspace)});
    std::fputs(to_table(rows).c_str(), stdout);
  }
  note_next_page(answer->next_page_token());
  return 0;
}

absl::StatusOr<int> remove(Context& context, const std::vector<std::string>& names) {
  auto client = context.client();
  if (!client.ok()) return client.status();
  return delete_each(names, "workspace", "workspaces", [&](const std::string& name) -> absl::Status {
    v1::DeleteWorkspaceRequest request;
    request.set_name(name);
    auto answer = (*client)->delete_workspace(request);
    if (absl::IsNotFound(answer.status())) return absl::NotFoundError(absl::StrCat("Workspace ", name, " not found"));
    if (answer.ok()) print("Deleted workspace " + name);
    return answer.status();
  });
}

struct MemberOptions {
  std::string workspace, subject, role;
  int page_size = 100;
  std::string page_token;
  Format format = Format::table;
};

absl::StatusOr<int> add_member(Context& context, const MemberOptions& options) {
  if (options.role != "user" && options.role != "admin")
    return absl::InvalidArgumentError(absl::StrCat("invalid role '", options.role, "': must be 'user' or 'admin'"));
  auto client = context.client();
  if (!client.ok()) return client.status();
  v1::AddWorkspaceMemberRequest request;
  request.mutable_workspace_scope()->set_workspace(options.workspace);
  request.set_principal_subject(options.subject);
  request.set_role(options.role == "admin" ? v1::WORKSPACE_ROLE_ADMIN : v1::WORKSPACE_ROLE_USER);
  if (auto added = (*client)->add_workspace_member(request); !added.ok()) return added.status();
  print(absl::StrCat("Added ", options.subject, " to workspace ", options.workspace, " as ", options.role));
  return 0;
}

absl::StatusOr<int> remove_member(Context& context, const MemberOptions& options) {
  auto client = context.client();
  if (!client.ok()) return client.status();
  v1::RemoveWorkspaceMemberRequest request;
  request.mutable_workspace_scope()->set_workspace(options.workspace);
  request.set_principal_subject(options.subject);
  request.set_allow_missing(true);
  auto removed = (*client)->remove_workspace_member(request);
  if (!removed.ok()) return removed.status();
  print(removed->outcome() == v1::DELETION_OUTCOME_ALREADY_ABSENT
            ? absl::StrCat(mark(kWarning), " Member ", options.subject, " not found in workspace ", options.workspace)
            : absl::StrCat("Removed ", options.subject, " from workspace ", options.workspace));
  return 0;
}

const char* show_role(v1::WorkspaceRole role) {
  if (role == v1::WORKSPACE_ROLE_ADMIN) return "admin";
  return role == v1::WORKSPACE_ROLE_USER ? "user" : "unknown";
}

absl::StatusOr<int> list_members(Context& context, const MemberOptions& options) {
  auto client = context.client();
  if (!client.ok()) return client.status();
  v1::ListWorkspaceMembersRequest request;
  request.mutable_workspace_scope()->set_workspace(options.workspace);
  request.set_page_size(options.page_size);
  request.set_page_token(options.page_token);
  auto answer = (*client)->list_workspace_members(request);
  if (!answer.ok()) return answer.status();
  if (options.format != Format::table) {
    json::array items;
    for (const auto& member : answer->members())
      items.push_back(json::object{{"subject", member.principal_subject()}, {"role", show_role(member.role())}});
    print_document(json::object{{"members", items}, {"next_page_token", answer->next_page_token()}}, options.format);
    return 0;
  }
  if (answer->members().empty()) {
    print(absl::StrCat("No members found in workspace ", options.workspace, "."));
  } else {
    std::vector<std::vector<std::string>> rows{{"SUBJECT", "ROLE"}};
    for (const auto& member : answer->members()) rows.push_back({member.principal_subject(), show_role(member.role())});
    std::fputs(to_table(rows).c_str(), stdout);
  }
  note_next_page(answer->next_page_token());
  return 0;
}

void add_member_commands(CLI::App& workspace, Action& chosen) {
  auto* member = workspace.add_subcommand("member", "Who may work in a workspace");
  // `--workspace` names whose members are meant; the default of the global flag is no answer to that.
  const auto sub = [&](const char* name, const char* what) {
    auto* command = member->add_subcommand(name, what);
    auto o = std::make_shared<MemberOptions>();
    command->add_option("--workspace", o->workspace)->required();
    return std::pair{command, o};
  };
  {
    auto [command, o] = sub("add", "Give somebody a role in a workspace");
    command->add_option("--subject", o->subject, "Subject of the principal")->required();
    command->add_option("--role", o->role, "user or admin")->required();
    command->callback([&chosen, o = o] { chosen = [o](Context& c) { return add_member(c, *o); }; });
  }
  {
    auto [command, o] = sub("remove", "Take somebody out of a workspace");
    command->add_option("--subject", o->subject, "Subject of the principal")->required();
    command->callback([&chosen, o = o] { chosen = [o](Context& c) { return remove_member(c, *o); }; });
  }
  {
    auto [command, o] = sub("list", "List members");
    add_paging(*command, o->page_size, o->page_token);
    add_output_option(*command, o->format);
    command->callback([&chosen, o = o] { chosen = [o](Context& c) { return list_members(c, *o); }; });
  }
}

}  // namespace

void add_workspace_commands(CLI::App& root, Action& chosen) {
  auto* workspace = root.add_subcommand("workspace", "Workspaces and their members");
  {
    auto name = std::make_shared<std::string>();
    auto labels = std::make_shared<std::vector<std::string>>();
    auto* command = workspace->add_subcommand("create", "Create a workspace");
    command->add_option("--name", *name)->required();
    command->add_option("--label", *labels, "KEY=VALUE; repeatable")->take_all()->allow_extra_args(false);
    command->callback([&chosen, name, labels] { chosen = [name, labels](Context& c) { return create(c, *name, *labels); }; });
  }
  {
    auto name = std::make_shared<std::string>();
    auto format = std::make_shared<Format>(Format::table);
    auto* command = workspace->add_subcommand("get", "Show a workspace");
    command->add_option("name", *name)->required();
    add_output_option(*command, *format);
    command->callback([&chosen, name, format] { chosen = [name, format](Context& c) { return get(c, *name, *format); }; });
  }
  {
    auto o = std::make_shared<ListOptions>();
    auto* command = workspace->add_subcommand("list", "List workspaces");
    add_paging(*command, o->page_size, o->page_token);
    command->add_option("--label-selector", o->selector, "k=v,k2=v2: all must match");
    add_output_option(*command, o->format);
    command->callback([&chosen, o] { chosen = [o](Context& c) { return list(c, *o); }; });
  }
  {
    auto names = std::make_shared<std::vector<std::string>>();
    auto* command = workspace->add_subcommand("delete", "Delete empty workspaces");
    command->add_option("names", *names)->required();
    command->callback([&chosen, names] { chosen = [names](Context& c) { return remove(c, *names); }; });
  }
  add_member_commands(*workspace, chosen);
}

}  // namespace openshell::cli
