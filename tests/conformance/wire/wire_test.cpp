// GW: the compiled descriptors say exactly what wire.tsv says, fact by fact, in both directions: nothing missing, nothing more.
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "datamodel.pb.h"
#include "openshell.pb.h"
#include "options.pb.h"
#include "sandbox.pb.h"

namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::MethodDescriptor;

template <class... Parts>
std::string line(const Parts&... parts) {
  std::ostringstream out;
  const char* separator = "";
  ((out << separator << parts, separator = "\t"), ...);
  return out.str();
}

std::string scalar_or_name(const FieldDescriptor* field) {
  if (field->type() == FieldDescriptor::TYPE_MESSAGE) return field->message_type()->full_name();
  if (field->type() == FieldDescriptor::TYPE_ENUM) return field->enum_type()->full_name();
  return field->type_name();
}

std::string type_of(const FieldDescriptor* field) {
  if (!field->is_map()) return scalar_or_name(field);
  const auto* entry = field->message_type();
  return "map<" + scalar_or_name(entry->map_key()) + "," + scalar_or_name(entry->map_value()) + ">";
}

std::string label_of(const FieldDescriptor* field) {
  if (field->is_map()) return "map";
  if (field->is_repeated()) return "repeated";
  return field->has_optional_keyword() ? "optional" : "-";
}

std::string or_dash(const std::string& text) { return text.empty() ? "-" : text; }

void describe(const Descriptor* message, std::set<std::string>& facts) {
  if (message->options().map_entry()) return;
  facts.insert(line("message", message->full_name()));
  for (int i = 0; i < message->field_count(); ++i) {
    const auto* field = message->field(i);
    const auto* oneof = field->real_containing_oneof();
    facts.insert(line("field", message->full_name(), field->number(), field->name(), label_of(field), type_of(field),
                      oneof ? oneof->name() : "-", field->options().GetExtension(openshell::options::v1::secret) ? "secret" : "-"));
  }
  for (int i = 0; i < message->reserved_range_count(); ++i) {
    const auto* range = message->reserved_range(i);
    facts.insert(line("reserved", message->full_name(), range->start, range->end - 1));
  }
  for (int i = 0; i < message->reserved_name_count(); ++i)
    facts.insert(line("reserved_name", message->full_name(), message->reserved_name(i)));
  for (int i = 0; i < message->nested_type_count(); ++i) describe(message->nested_type(i), facts);
}

void describe(const EnumDescriptor* type, std::set<std::string>& facts) {
  facts.insert(line("enum", type->full_name()));
  for (int i = 0; i < type->value_count(); ++i)
    facts.insert(line("value", type->full_name(), type->value(i)->number(), type->value(i)->name()));
  for (int i = 0; i < type->reserved_range_count(); ++i) {
    facts.insert(line("enum_reserved", type->full_name(), type->reserved_range(i)->start, type->reserved_range(i)->end));
  }
  for (int i = 0; i < type->reserved_name_count(); ++i) facts.insert(line("enum_reserved_name", type->full_name(), type->reserved_name(i)));
}

std::string streaming_of(const MethodDescriptor* method) {
  if (method->client_streaming()) return method->server_streaming() ? "both" : "client";
  return method->server_streaming() ? "server" : "unary";
}

void describe(const FileDescriptor* file, std::set<std::string>& facts) {
  facts.insert(line("package", file->name(), file->package()));
  for (int i = 0; i < file->message_type_count(); ++i) describe(file->message_type(i), facts);
  for (int i = 0; i < file->enum_type_count(); ++i) describe(file->enum_type(i), facts);
  for (int i = 0; i < file->extension_count(); ++i) {
    const auto* extension = file->extension(i);
    facts.insert(
        line("extension", extension->name(), extension->number(), extension->containing_type()->full_name(), scalar_or_name(extension)));
  }
  for (int s = 0; s < file->service_count(); ++s) {
    for (int i = 0; i < file->service(s)->method_count(); ++i) {
      const auto* method = file->service(s)->method(i);
      const auto& rule = method->options().GetExtension(openshell::options::v1::authorization);
      facts.insert(line("method", file->service(s)->full_name(), method->name(), method->input_type()->full_name(),
                        method->output_type()->full_name(), streaming_of(method), or_dash(rule.auth_mode()), or_dash(rule.workspace_role()),
                        or_dash(rule.global_role()), or_dash(rule.scope())));
    }
  }
}

std::set<std::string> published() {
  std::set<std::string> facts;
  std::ifstream table{OPENSHELL_SOURCE_DIR "/tests/conformance/wire/wire.tsv"};
  for (std::string text; std::getline(table, text);) {
    if (!text.empty() && text[0] != '#') facts.insert(text);
  }
  return facts;
}

std::set<std::string> compiled() {
  std::set<std::string> facts;
  for (const auto* file :
       {openshell::v1::Sandbox::descriptor()->file(), openshell::sandbox::v1::SandboxPolicy::descriptor()->file(),
        openshell::datamodel::v1::Provider::descriptor()->file(), openshell::options::v1::AuthorizationRule::descriptor()->file()}) {
    describe(file, facts);
  }
  return facts;
}

TEST(Wire, CompiledDescriptorsAreThePublishedInterface) {  // GW-02, GW-26
  const auto want = published();
  const auto have = compiled();
  ASSERT_GT(want.size(), 1'500U) << "the table is not there";
  for (const auto& fact : want) EXPECT_TRUE(have.contains(fact)) << "missing from proto/: " << fact;
  for (const auto& fact : have) EXPECT_TRUE(want.contains(fact)) << "not published: " << fact;
}

TEST(Wire, EveryMethodSaysWhoMayCallIt) {
  const auto* service = openshell::v1::Sandbox::descriptor()->file()->FindServiceByName("OpenShell");
  ASSERT_NE(service, nullptr);
  for (int i = 0; i < service->method_count(); ++i) {
    EXPECT_FALSE(service->method(i)->options().GetExtension(openshell::options::v1::authorization).auth_mode().empty())
        << service->method(i)->name();
  }
}

}  // namespace
