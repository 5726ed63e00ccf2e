"""The paper's experiments on images: faces, digits and other structured noise, with the systems that it compares."""
